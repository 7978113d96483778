#[tokio::test]
async fn scratch() {
    std::fs::write("/tmp/figures-metrics.txt", crate::sample::whole().await).unwrap();
}
