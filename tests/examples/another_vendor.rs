use super::*;

#[tokio::test]
async fn a_vendor_that_weighs_its_calls_is_kept_to_and_its_retry_after_is_obeyed_by_everybody() {
    let shown = run("another_vendor", &[]).await;
    assert_eq!(number_after(&shown, "\n200으로 답한 호출:"), 15.0);
    assert_eq!(number_after(&shown, "벤더가 센 무게:"), 27.0);
    let worst = number_after(&shown, "가장 무거운 1초:");
    assert!((5.0..=20.0).contains(&worst), "{shown}");
    assert_eq!(number_after(&shown, "우리 호출의 답:"), 429.0);
    assert!(shown.contains("초 쉬기, 이유 -1003"), "{shown}");
    assert_eq!(number_after(&shown, "다음 호출:"), 6.0);
    assert!(number_after(&shown, "도착하기까지:") >= 2.0, "{shown}");
    assert_eq!(number_after(&shown, "그 사이에 도착한 호출:"), 0.0);
    assert!(shown.contains("weights/public/price: closed, 실패 0건"), "{shown}");
}
