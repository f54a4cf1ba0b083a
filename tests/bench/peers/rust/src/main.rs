//! Google's Rust client, measured like the clients of tests/bench/client.py:
//!
//!     cargo run --release -- localhost:PORT --seconds 3 --max-messages 40000
//!
//! Prints its figures as one JSON object. The clock starts a second after the first message.

use google_cloud_auth::credentials::anonymous::Builder as Anonymous;
use google_cloud_pubsub::client::Subscriber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SUBSCRIPTION: &str = "projects/bench/subscriptions/bench-0";

/// The CPU seconds of this process, and its peak memory in MiB.
fn usage() -> (f64, f64) {
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut used) }, 0);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
    (cpu, used.ru_maxrss as f64 / 1024.0)
}

/// The value of an option, as text.
fn option(name: &str, default: &str) -> String {
    let given: Vec<String> = std::env::args().collect();
    let at = given.iter().position(|one| one == name);
    at.map_or(default.to_string(), |at| given[at + 1].clone())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = std::env::args().nth(1).expect("the endpoint is missing");
    let seconds: f64 = option("--seconds", "3").parse()?;
    let window: i64 = option("--max-messages", "1000").parse()?;
    let client = Subscriber::builder()
        .with_endpoint(format!("http://{endpoint}"))
        .with_credentials(Anonymous::new().build())
        .build()
        .await?;
    let mut stream = client
        .subscribe(SUBSCRIPTION)
        .set_max_outstanding_messages(window)
        .build();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Some(next) = stream.next().await {
            let (_message, handler) = next.expect("the stream broke");
            handler.ack();
            counted.fetch_add(1, Relaxed);
        }
    });
    while count.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, began, (cpu_before, _)) = (count.load(Relaxed), Instant::now(), usage());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let messages = (count.load(Relaxed) - before) as f64;
    let (cpu, peak) = usage();
    println!(
        "{{\"rate\": {}, \"cpu_micros\": {}, \"peak_mebibytes\": {}}}",
        messages / began.elapsed().as_secs_f64(),
        (cpu - cpu_before) / messages * 1e6,
        peak
    );
    std::process::exit(0);
}
