# The zygote: an interpreter that has imported what steps need, and forks a process for each call.
# It runs no step itself. It stands behind `step.py` in one text.
#
# The worker sends one byte and four descriptors for each call: orders, channel, stdout, stderr.
# Over `orders` the zygote says `pid N`, then `exit N` or `signal N`, or `fail TEXT`; the worker
# says `T` (ask the call's group to end) or `K` (kill it), and kills it by closing `orders`. That
# closes by itself when the worker dies.

PR_SET_PDEATHSIG = 1


def serve(preload):
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    if sys.path and sys.path[0] == "":
        del sys.path[0]
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"stepwell: {name} could not be loaded beforehand: {error}", file=sys.stderr)
    Zygote(control).loop()


def death_signal():
    """A function that has this process killed when its parent dies, where the system can."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except Exception:
        return lambda: None
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Zygote:
    def __init__(self, control):
        self.control = control
        self.calls = {}  # the descriptor of its orders -> the process
        self.die_with_parent = death_signal()
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)
        self.poll.register(self.woken, select.POLLIN)
        # Pages that no collector touches stay shared with every call.
        gc.collect()
        gc.freeze()

    def loop(self):
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.woken:
                    self.reap()
                elif fd == self.control.fileno():
                    self.accept()
                elif fd in self.calls:
                    self.obey(fd)

    def accept(self):
        try:
            _, fds, _, _ = socket.recv_fds(self.control, 1, 4)
        except OSError:
            fds = []
        if len(fds) != 4:
            for pid in self.calls.values():
                end(pid, signal.SIGKILL)
            os._exit(0)
        for fd in fds:
            os.set_inheritable(fd, False)
        orders, channel, out, err = fds
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            tell(orders, f"fail {error}")
            pid = None
        if pid == 0:
            self.become_call(parent, channel, out, err, orders)
        for fd in (channel, out, err):
            os.close(fd)
        if pid is None:
            os.close(orders)
            return
        tell(orders, f"pid {pid}")
        self.calls[orders] = pid
        self.poll.register(orders, select.POLLIN)

    def become_call(self, parent, channel, out, err, orders):
        try:
            os.setsid()
            self.die_with_parent()
            if os.getppid() != parent:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.close()
            for fd in (self.woken, self.wake, orders, *self.calls):
                os.close(fd)
            for fd, standard in ((out, 1), (err, 2)):
                os.dup2(fd, standard)
                os.close(fd)
            run_step(socket.socket(fileno=channel))
        finally:
            os._exit(1)

    def obey(self, orders):
        try:
            order = os.read(orders, 1)
        except OSError:
            order = b""
        end(self.calls[orders], signal.SIGTERM if order == b"T" else signal.SIGKILL)
        if not order:
            # Nobody listens any more; the process is reaped like any other.
            self.poll.unregister(orders)

    def reap(self):
        try:
            while os.read(self.woken, 4096):
                pass
        except BlockingIOError:
            pass
        while self.calls:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Before it is reaped: after that its number may belong to another process.
            end(ended.si_pid, signal.SIGKILL)
            os.waitpid(ended.si_pid, 0)
            orders = next((fd for fd, pid in self.calls.items() if pid == ended.si_pid), None)
            if orders is None:
                continue
            how = "exit" if ended.si_code == os.CLD_EXITED else "signal"
            tell(orders, f"{how} {ended.si_status}")
            try:
                self.poll.unregister(orders)
            except KeyError:
                pass
            del self.calls[orders]
            os.close(orders)


def end(pid, how):
    try:
        os.killpg(pid, how)
    except OSError:
        try:
            # It has not made its own group yet.
            os.kill(pid, how)
        except OSError:
            pass


def tell(orders, text):
    try:
        os.write(orders, text.replace("\n", " ").encode() + b"\n")
    except OSError:
        pass  # The worker has dropped the call.


serve(sys.argv[1:])
