//! The migrations are embedded: a file that is added to them has to rebuild the library.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
