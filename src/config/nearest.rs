//! Which known name somebody meant.

/// The known name that is most like this one, if one is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Below this, two names share letters by chance.
    const NEAR: f64 = 0.75;
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_the_name_and_a_stranger_finds_none() {
        let known = ["kis-real", "kis-paper", "예산"];
        assert_eq!(nearest("kis-rael", known), Some("kis-real"));
        assert_eq!(nearest("KIS-PAPER", known), Some("kis-paper"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
