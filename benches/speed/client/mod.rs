use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;
use crate::report::Report;

pub async fn run(_ground: &Ground, _options: &Options, _report: &mut Report) -> Outcome<()> {
    Ok(())
}
