use tokio_postgres::NoTls;

use crate::not_tried;
use crate::tools::disk_full::{SmallDiskServer, available, is_mounted};
use crate::tools::psql::ask;

const GROW: &str = "INSERT INTO grown SELECT repeat('x', 1000) FROM generate_series(1, 20000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_what_needs_space_and_a_freed_one_takes_it() {
    if let Err(why) = available() {
        return not_tried("a full disk", &why);
    }
    let server = SmallDiskServer::start(&[]).unwrap();
    let (client, connection) = tokio_postgres::connect(&server.postgres.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE grown (what text)").await.unwrap();
    server.fill();
    let error = client.batch_execute(GROW).await.unwrap_err();
    println!("a statement that needs space: {error:?}");
    assert_eq!(error.code().map(|code| code.code()), Some("53100"), "{error:?}");
    assert_eq!(ask(&server.postgres, "SELECT count(*) FROM grown"), "0", "reading goes on");
    server.free();
    client.batch_execute("INSERT INTO grown VALUES ('x')").await.unwrap();
}

#[test]
fn without_space_for_its_log_the_server_goes_down_and_comes_back_with_what_was_committed() {
    if let Err(why) = available() {
        return not_tried("a full disk", &why);
    }
    let mut server = SmallDiskServer::start(&[]).unwrap();
    ask(&server.postgres, "CREATE TABLE kept (n int)");
    ask(&server.postgres, "INSERT INTO kept VALUES (1)");
    server.fill();
    server.crash();
    server.free();
    server.wait_until_up();
    assert_eq!(ask(&server.postgres, "SELECT min(n) FROM kept"), "1");
    ask(&server.postgres, "INSERT INTO kept VALUES (3)");
}

#[test]
fn the_disk_is_unmounted_and_its_folder_gone_with_the_value() {
    if let Err(why) = available() {
        return not_tried("a full disk", &why);
    }
    let server = SmallDiskServer::start(&[]).unwrap();
    let place = server.postgres.data_dir().unwrap().ancestors().nth(2).unwrap().to_owned();
    assert!(is_mounted(&place));
    server.fill();
    drop(server);
    assert!(!is_mounted(&place));
    assert!(!place.exists());
}
