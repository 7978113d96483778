//! A process tells of a fence that it sees, whoever fenced: once, and not of those that were before its time.

use std::io::Write;
use std::sync::{Arc, Mutex};

use call_budget::Settings;
use tracing_subscriber::fmt::MakeWriter;

use crate::script::{Step, standing};
use crate::{ms, pass, send, settle};

#[tokio::test]
async fn a_fence_is_told_once_for_each_change_and_not_at_the_first_answer() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let (clock, script) = standing(|_, _| Step::GrantAll);
    script.fence_by_another();
    let budget = script.budget(&Settings::default());
    let call = async |class: &str| {
        let acquire = tokio::spawn({
            let (budget, class) = (budget.clone(), class.to_owned());
            async move { send(budget.acquire("kis-real", &class).await) }
        });
        while !acquire.is_finished() {
            settle().await;
            pass(&clock, ms(10)).await;
        }
        acquire.await.unwrap();
    };
    for class in ["order", "order", "minute"] {
        call(class).await;
    }
    assert_eq!(log.fenced(), Vec::<String>::new(), "that fence was before the first answer");
    script.fence_by_another();
    for class in ["order", "minute", "order"] {
        call(class).await;
    }
    assert_eq!(log.fenced().len(), 1, "{:?}", log.fenced());
    script.fence_by_another();
    script.fence_by_another();
    call("minute").await;
    let told = log.fenced();
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, fences) in told.iter().zip(["fences=2", "fences=4"]) {
        assert!(line.contains("INFO") && line.contains("budget=\"kis-real\"") && line.contains(fences), "{line}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn fenced(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains("call_budget_fenced")).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}
