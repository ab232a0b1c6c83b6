//! Work for workers in other processes that wait at this server: the commit that makes some work ready also claims the work
//! for one of them. What nobody waits for stays offered as a task in the store.

use stepwell_kernel::command::{Claimed, Command, Env, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::time::Time;

use super::hot_run::{Offer, can_be_claimed};
use super::{Assignment, Coordinator, HotRun, Notice};
use crate::rows::served_by;
use crate::seats::Place;
use crate::store::RunNo;

impl Coordinator {
    /// Claims what the draft of a run offers for workers that wait for it.
    pub(super) fn hand_out(&mut self, run: RunNo, now: Time) {
        if self.stopping || self.shared.seats.is_empty() {
            return;
        }
        let mut left = Vec::new();
        loop {
            let Some(hot) = self.runs.get_mut(run) else {
                let what = "a run is not in memory while its work is handed out";
                return self.invariants.broken(run, what);
            };
            let offers = hot.take_offers();
            if offers.is_empty() {
                hot.leave_offered(left);
                return;
            }
            for offer in offers {
                if !self.hand(run, offer, now) {
                    left.push(offer);
                }
            }
        }
    }

    /// Claims one offer for a worker that waits for it. Says whether it is claimed, or over.
    fn hand(&mut self, run: RunNo, offer: Offer, now: Time) -> bool {
        let Some(hot) = self.runs.get(run) else {
            return false;
        };
        let by_the_log = now.max(hot.state().last_at());
        let target = offer.target;
        let is_due = offer.visible_at <= by_the_log && can_be_claimed(hot.state(), target);
        let others = hot.other_owner(self.lease.session()).is_some();
        if !is_due || others || !self.config.may_hand_out(hot) {
            return false;
        }
        let Some(place) = self.place(hot, target) else {
            return false;
        };
        let claim = Command::ClaimStep {
            target,
            worker: place.worker().to_owned(),
            lease_until: by_the_log.plus(place.lease_ms()),
        };
        let env = Env {
            now,
            key: self.key.clone(),
        };
        let Some(hot) = self.runs.get_mut(run) else {
            return false;
        };
        let Ok((effects, reply)) = hot.decide(claim, &env) else {
            return false;
        };
        match reply {
            Reply::Claimed(claimed) => hot.draft().hand(place, *claimed),
            // The step ended without work, as one that has nothing to loop over; the place is free again.
            Reply::Done
            | Reply::Created { .. }
            | Reply::Duplicate(_)
            | Reply::Refused(_)
            | Reply::RetryRun { .. } => {}
        }
        self.follow(run, effects);
        true
    }

    fn place(&self, hot: &HotRun, target: Target) -> Option<Place> {
        let (queue, op) = served_by(hot.plan(), target);
        let tenant = &hot.state().context().tenant_id;
        self.shared.seats.place(queue, op, tenant)
    }

    /// The claims of work for workers outside are committed: they get the work.
    pub(super) fn give_out(&mut self, run: RunNo, handed: Vec<(Place, Claimed)>) {
        if handed.is_empty() {
            return;
        }
        let Some(hot) = self.runs.get(run) else {
            let what = "work was handed out for a run that is not in memory";
            return self.invariants.broken(run, what);
        };
        for (place, claimed) in handed {
            place.give(Assignment::of(hot, claimed));
        }
    }

    /// Work that nobody waited for is in the store.
    pub(super) fn tell_offers(&mut self, run: RunNo, offers: Vec<Offer>) {
        for offer in offers {
            if let Some(hot) = self.runs.get(run) {
                let (queue, op) = served_by(hot.plan(), offer.target);
                let tenant = &hot.state().context().tenant_id;
                self.shared.seats.put(queue, op, tenant);
            }
            self.notices.push(Notice::Offer {
                run,
                target: offer.target,
                visible_at: offer.visible_at,
            });
        }
    }
}
