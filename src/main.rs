fn main() -> std::process::ExitCode {
    call_budget::cli::main()
}
