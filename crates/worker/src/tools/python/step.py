"""Runs one step's code in this process and answers with one JSON document.

The zygote forks a process for each call and ends in `run_step`. Nothing here outlives a call.
"""

import ast
import atexit
import base64
import builtins
import dataclasses
import datetime
import decimal
import enum
import gc
import importlib
import inspect
import json
import keyword
import linecache
import math
import os
import pathlib
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
import uuid

FILE = "<code>"
# The worker's JSON reader goes no deeper than 128.
DEEPEST = 100
LARGEST_INT = 2**64 - 1
SMALLEST_INT = -(2**63)


class Refused(Exception):
    """The result cannot be handed on."""


def run_step(channel):
    """Reads the request, runs it, answers, and ends this process."""
    request = json.loads(receive(channel))
    called = os.getpid()
    answer = attempt(request)
    flush()
    if os.getpid() != called:
        # The code has forked and came back here twice. Only the process that was called answers.
        os._exit(answer["exit"]["code"] & 255 if "exit" in answer else "value" not in answer)
    send(channel, json.dumps(answer, ensure_ascii=False, allow_nan=False).encode())
    os._exit(0)


def attempt(request):
    try:
        try:
            prepare(request)
            value = run(request)
        finally:
            wind_up()
        return answer_with(value, request["result_bytes"])
    except Refused as refused:
        return {"refused": {"message": str(refused)}}
    except SystemExit as stop:
        return {"exit": {"code": exit_code(stop)}}
    except BaseException as error:
        return {"exception": describe(error, request["text_chars"])}


def receive(channel):
    (size,) = struct.unpack(">Q", channel.recv(8, socket.MSG_WAITALL))
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            os._exit(1)
        parts += part
    return parts


def send(channel, data):
    try:
        channel.sendall(struct.pack(">Q", len(data)) + data)
    except OSError:
        os._exit(1)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # The code closed it; what was in it is lost either way.


def prepare(request):
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    # The interpreter is older than the call, and has not seen this.
    for folder in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    # As for a script: modules beside it can be imported.
    sys.path.insert(0, "")
    sys.argv = [FILE]
    # The interpreter's own were made for the descriptors of the zygote.
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = sys.__stdout__ = writer(1)
    sys.stderr = sys.__stderr__ = writer(2)
    if request["memory_bytes"]:
        import resource

        limit = request["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def writer(fd):
    # Line by line, so that readers see each line immediately.
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def run(request):
    args = request["args"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = module.__dict__
    names["__builtins__"] = builtins
    names["__file__"] = FILE
    names.update(input_data=args, context=args, args=args)
    names.update((name, value) for name, value in args.items() if is_name(name))
    names.update(imported(request["libs"]))
    given = dict(names)

    source = request["code"]
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    tree = ast.parse(source, FILE)
    bound = Bound(tree)
    exited = False
    try:
        value = execute(tree, bound, names)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
        value, exited = None, True
    # `result` may also be an argument that the code never touched.
    set_here = "result" in bound.names or names.get("result") is not given.get("result")
    if value is None and "result" in names and set_here:
        value = names["result"]
    elif not bound.returns and not bound.guarded and not exited and callable(names.get("main")):
        value = call_main(names["main"], args)
    return value


def is_name(text):
    return text.isidentifier() and not keyword.iskeyword(text) and not text.startswith("__")


def imported(libs):
    """`{alias: module}` as pairs of a name and what it stands for."""
    for alias, name, part in libs:
        module = importlib.import_module(name)
        if part:
            yield alias, getattr(module, part)
            continue
        # As `import a.b` does: it binds `a`.
        yield (alias, module) if alias else (name.partition(".")[0], sys.modules[name.partition(".")[0]])


class Bound(ast.NodeVisitor):
    """Which names the code binds at its top level, whether it returns there, and whether it has a
    `__name__` guard."""

    def __init__(self, tree):
        self.names = set()
        self.returns = False
        self.guarded = False
        self.visit(tree)

    def visit_Return(self, node):
        self.returns = True
        self.generic_visit(node)

    def visit_Name(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_If(self, node):
        self.guarded |= any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))
        self.generic_visit(node)

    def visit_Import(self, node):
        self.names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)

    def visit_ImportFrom(self, node):
        self.names.update(alias.asname or alias.name for alias in node.names if alias.name != "*")

    def visit_ExceptHandler(self, node):
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    def visit_scope(self, node):
        self.names.add(node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_scope

    def visit_Lambda(self, node):
        pass

    def visit_comprehension_scope(self, node):
        # Only `:=` binds outside of it.
        self.names.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_comprehension_scope
    visit_GeneratorExp = visit_comprehension_scope

    def visit_MatchAs(self, node):
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node):
        if node.rest:
            self.names.add(node.rest)
        self.generic_visit(node)


class Unannotated(ast.NodeTransformer):
    """Global names must not be annotated; at the top level of the code they all are global."""

    def visit_AnnAssign(self, node):
        if not isinstance(node.target, ast.Name):
            return node
        plain = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(plain, node)

    def leave(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = leave


def execute(tree, bound, names):
    """Runs the code; gives what a top-level `return` returned.

    Code that returns becomes a function whose names are all global, so that it behaves like any
    other code but for the `return`.
    """
    if not bound.returns:
        exec(compile(tree, FILE, "exec"), names)
        return None
    hoisted = [n for n in tree.body if isinstance(n, ast.ImportFrom) and is_hoisted(n)]
    body = [Unannotated().visit(n) for n in tree.body if n not in hoisted]
    shell = ast.parse("def main(): pass")
    function = shell.body[0]
    function.name = "<step>"
    function.body = ([ast.Global(sorted(bound.names))] if bound.names else []) + body
    shell.body = hoisted + [function]
    exec(compile(ast.fix_missing_locations(shell), FILE, "exec"), names)
    step = names.pop("<step>")
    step.__code__ = step.__code__.replace(co_name="<module>")
    return step()


def is_hoisted(node):
    """These may stand only at the top of a module."""
    return node.module == "__future__" or any(alias.name == "*" for alias in node.names)


def call_main(main, args):
    """Calls `main` with what its parameters are named after, or with all of the arguments."""
    known = {"input_data": args, "context": args, "args": args, **args}
    try:
        parameters = list(inspect.signature(main).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) == 1 and positional[0].name not in known and positional[0].default is positional[0].empty:
        value = main(args)
    else:
        first = [known[p.name] for p in positional if p.kind == p.POSITIONAL_ONLY and p.name in known]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        matching = {p.name: known[p.name] for p in parameters if p.kind in named and p.name in known}
        if any(p.kind == p.VAR_KEYWORD for p in parameters):
            matching = {**args, **matching}
        value = main(*first, **matching)
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def wind_up():
    """What an interpreter does at its end, without the slow rest: threads, and exit handlers."""
    for name, owner in (("_shutdown", threading), ("_run_exitfuncs", atexit)):
        finish = getattr(owner, name, None)
        if finish:
            finish()


def exit_code(stop):
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def answer_with(value, limit):
    converter = Converter(limit)
    value = converter.plain(value, 0)
    size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    if size > limit:
        raise too_large(limit)
    return {"value": {"value": value, "notes": sorted(converter.notes)}}


def too_large(limit):
    return Refused(f"the result is larger than {limit} bytes; write it to a file or a table, and return where it is")


class Converter:
    """Makes a value plain: what JSON knows, and nothing else."""

    def __init__(self, limit):
        self.limit = limit
        self.left = limit
        self.open = set()
        self.notes = set()

    def spend(self, size):
        # Counted on the way, so that a huge result is refused before it is copied.
        self.left -= size
        if self.left < 0:
            raise too_large(self.limit)

    def plain(self, value, depth):
        if value is None or isinstance(value, bool):
            self.spend(4)
            return value
        if isinstance(value, enum.Enum):
            return self.plain(value.value, depth)
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, int):
            return self.integer(int(value))
        if isinstance(value, float):
            return self.number(float(value))
        if depth >= DEEPEST:
            raise Refused(f"the result is nested deeper than {DEEPEST} levels")
        if id(value) in self.open:
            raise Refused("the result holds itself: there is a cycle in it")
        self.open.add(id(value))
        try:
            return self.compound(value, depth + 1)
        finally:
            self.open.discard(id(value))

    def text(self, text):
        self.spend(len(text) + 2)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                self.notes.add("text that is no Unicode was escaped")
                return text.encode("utf-8", "backslashreplace").decode()
        return text

    def integer(self, number):
        if SMALLEST_INT <= number <= LARGEST_INT:
            self.spend(1)
            return number
        self.notes.add("an integer that is too large became text")
        if number.bit_length() > 10_000:
            return self.text(hex(number))
        return self.text(str(number))

    def number(self, number):
        self.spend(3)
        if math.isfinite(number):
            return number
        self.notes.add("a number that is not finite became null")
        return None

    def compound(self, value, depth):
        if isinstance(value, dict):
            return self.mapping(value, depth)
        if isinstance(value, (list, tuple)):
            return self.items(value, depth)
        if isinstance(value, (set, frozenset)):
            try:
                value = sorted(value)
            except TypeError:
                value = list(value)
            return self.items(value, depth)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.octets(value)
        if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
            return self.text(value.isoformat())
        if isinstance(value, datetime.timedelta):
            return self.number(value.total_seconds())
        if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
            return self.text(str(value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self.mapping(fields, depth)
        return self.foreign(value, depth)

    def items(self, values, depth):
        self.spend(len(values) + 2)
        return [self.plain(value, depth) for value in values]

    def mapping(self, value, depth):
        self.spend(len(value) * 4 + 2)
        return {self.key(key): self.plain(item, depth) for key, item in value.items()}

    def key(self, key):
        if isinstance(key, str):
            return self.text(str.__str__(key))
        if key is None or isinstance(key, (bool, int, float)):
            return json.dumps(key)
        if not isinstance(key, (uuid.UUID, datetime.date, decimal.Decimal, pathlib.PurePath, enum.Enum)):
            self.notes.add(f"a key of type {type(key).__name__} became text")
        return self.text(str(key.value if isinstance(key, enum.Enum) else key))

    def octets(self, value):
        self.spend(len(value))
        value = bytes(value)
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.notes.add("bytes that are no UTF-8 became base64")
            return base64.b64encode(value).decode()

    def foreign(self, value, depth):
        """What libraries call their own way of being plain: numpy, pandas, pydantic."""
        for name, options in (("tolist", {}), ("to_dict", {"orient": "records"}), ("to_dict", {}), ("model_dump", {})):
            method = None if isinstance(value, type) else getattr(value, name, None)
            if callable(method):
                try:
                    return self.plain(method(**options), depth)
                except (TypeError, ValueError):
                    continue
        self.notes.add(f"a value of type {type(value).__name__} became text")
        return self.text(str(value))


CLASSES = (
    ("timeout", {"TimeoutError", "Timeout", "TimeoutException"}),
    ("transport", {"ConnectionError", "ConnectError", "TransportError"}),
    ("validation", {"ImportError", "SyntaxError", "NameError", "TypeError"}),
)


def describe(error, longest):
    """What is told of an exception. Lines are the code's own; frames of this file are left out."""
    kind = type(error).__name__
    frames = [f for f in traceback.walk_tb(error.__traceback__) if f[0].f_code.co_filename == FILE]
    line = frames[-1][1] if frames else None
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line = error.lineno
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != FILE:
        trace = trace.tb_next
    try:
        told = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:
        told = f"{kind}\n"
    flush()
    try:
        print(told, end="", file=sys.stderr)
    except Exception:
        pass  # The code closed it; the traceback is in the answer as well.
    try:
        message = (error.msg if isinstance(error, SyntaxError) else str(error)) or ""
    except Exception:
        message = "(its text could not be made)"
    above = {c.__name__ for c in type(error).__mro__}
    classes = [name for name, known in CLASSES if above & known]
    return {
        "exception": kind,
        "message": clean(str(message)[:longest]),
        "line": line,
        "traceback": clean(told[-longest:]),
        "class": classes[0] if classes else "unknown",
    }


def clean(text):
    return text.encode("utf-8", "backslashreplace").decode()
