//! The answers of the engine to all results of a request, gathered: the request is woken once, when the last answer is there,
//! and not once for each of them.

use std::sync::{Arc, Mutex, PoisonError};

use stepwell_engine::Error;
use stepwell_kernel::command::Reply;
use tokio::sync::oneshot;

use crate::app::ANSWER;

/// An answer of the engine.
type Answer = Result<Reply, Error>;

/// By their places; none where nothing was answered.
type Answers = Vec<Option<Answer>>;

/// Where answers come together. They are complete when it and all its places are dropped.
pub(super) struct Gathered(Arc<Shared>);

struct Shared {
    answers: Arc<Mutex<Answers>>,
    /// Dropped with the last place: that is what the request waits for.
    _complete: oneshot::Sender<()>,
}

/// Waits for all answers.
pub(super) struct AllAnswers {
    answers: Arc<Mutex<Answers>>,
    complete: oneshot::Receiver<()>,
}

/// Where one answer is put.
pub(super) struct AnswerPlace {
    shared: Arc<Shared>,
    place: usize,
    is_given: bool,
}

impl Gathered {
    pub(super) fn new(places: usize) -> (Gathered, AllAnswers) {
        let mut answers = Vec::new();
        answers.resize_with(places, || None);
        let answers = Arc::new(Mutex::new(answers));
        let (complete, completed) = oneshot::channel();
        let shared = Shared {
            answers: Arc::clone(&answers),
            _complete: complete,
        };
        let all = AllAnswers {
            answers,
            complete: completed,
        };
        (Gathered(Arc::new(shared)), all)
    }

    pub(super) fn place(&self, place: usize) -> AnswerPlace {
        AnswerPlace {
            shared: Arc::clone(&self.0),
            place,
            is_given: false,
        }
    }
}

impl AnswerPlace {
    pub(super) fn give(mut self, answer: Answer) {
        self.put(answer);
    }

    fn put(&mut self, answer: Answer) {
        self.is_given = true;
        let answers = &self.shared.answers;
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = answers.get_mut(self.place) {
            *place = Some(answer);
        }
    }
}

impl Drop for AnswerPlace {
    fn drop(&mut self) {
        // An engine that stops answers nobody.
        if !self.is_given {
            self.put(Err(Error::Stopping));
        }
    }
}

impl AllAnswers {
    /// The answers that came in time.
    pub(super) async fn answers(self) -> Answers {
        // Nothing is ever sent: the end of the last place is the news.
        let _ = tokio::time::timeout(ANSWER, self.complete).await;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_answers_come_together_and_a_place_without_one_says_that_the_engine_stops() {
        let (gathered, all) = Gathered::new(3);
        let places: Vec<AnswerPlace> = (0..2).map(|it| gathered.place(it)).collect();
        drop(gathered);
        let waiting = tokio::spawn(all.answers());
        let mut places = places.into_iter();
        places.next().unwrap().give(Ok(Reply::Done));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "one answer is missing");
        drop(places);
        let answers = waiting.await.unwrap();
        assert!(matches!(answers[0], Some(Ok(Reply::Done))));
        assert!(matches!(answers[1], Some(Err(Error::Stopping))));
        assert!(answers[2].is_none(), "nobody was asked");
    }
}
