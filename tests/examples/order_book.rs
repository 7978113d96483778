use serde_json::Value;

use super::*;

#[tokio::test]
async fn a_reader_of_the_order_book_is_told_which_source_it_is_and_how_late() {
    let shown = run("order_book", &[]).await;
    let books: Vec<Value> = shown
        .split("\n{")
        .skip(1)
        .map(|rest| serde_json::from_str(&format!("{{{}}}", rest.split("\n}").next().unwrap())).unwrap())
        .collect();
    let field = |name: &str| -> Vec<&str> { books.iter().map(|book| book[name].as_str().unwrap_or("-")).collect() };
    assert_eq!(field("source"), ["KIS_REALTIME", "DELAYED_15_MIN", "DELAYED_15_MIN", "SIMULATED", "KIS_REALTIME"]);
    let notes = field("sourceNote");
    assert_eq!(notes[1], "KIS 실시간 호가 일시 불가. 15분 지연 데이터를 표시합니다.");
    assert!(notes[2] == notes[1] && notes[3].contains("모의 데이터") && notes[4] == notes[0], "{notes:?}");
    let delays: Vec<Option<u64>> = books.iter().map(|book| book["delaySeconds"].as_u64()).collect();
    assert_eq!(delays, [Some(0), Some(900), Some(900), None, Some(0)]);
    let moment = |book: &Value| -> jiff::Timestamp { book["asOf"].as_str().unwrap().parse().unwrap() };
    let behind = moment(&books[0]).duration_since(moment(&books[1])).as_secs();
    assert!((840..=900).contains(&behind), "{behind} s behind the first");
    assert!(books[3]["asOf"].is_null() && field("asOf")[0].ends_with("+09:00"), "{}", books[3]);

    let passed_over = |book: usize| books[book]["passedOver"].as_array().unwrap().clone();
    let says = |book: usize, place: usize, words: &str| {
        assert!(passed_over(book)[place].as_str().unwrap().contains(words), "{words}: {:?}", passed_over(book));
    };
    assert!(passed_over(0).is_empty() && passed_over(4).is_empty());
    says(1, 0, "KIS_REALTIME: bad");
    says(1, 0, "attempts: 3");
    says(2, 0, "KIS_REALTIME: refused");
    says(2, 0, "CALL_BUDGET_CIRCUIT_OPEN");
    says(3, 1, "DELAYED_15_MIN: ");
    assert!(books.iter().all(|book| book["bids"].as_array().unwrap().len() == 2), "{books:?}");
    assert!(shown.trim_end().lines().any(|line| line == "차단기 kis/real/book: closed"), "{shown}");
}
