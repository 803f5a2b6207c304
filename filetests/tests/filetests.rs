//! Every command of every `filetests/**/*.tileas` file, and of the kernels among the examples, as a named test, in parallel.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use tileas_filetests::{Case, collect, external, root, run_file};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let bless = std::env::var_os("TILEAS_BLESS").is_some_and(|v| v == "1");
    let examples = root().join("../../examples/kernels");
    let all = collect(&root()).and_then(|mut cases| {
        let named =
            collect(&examples)?.into_iter().map(|c| Case { name: format!("examples/{}", c.name), ..c });
        cases.extend(named);
        Ok(cases)
    });
    let cases = match all {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("{e:#}");
            return ExitCode::FAILURE;
        }
    };
    let trials = cases.into_iter().map(|case| {
        let missing = external::missing(case.kind);
        let ignored = missing.is_some() && !external::required();
        let name = case.name.clone();
        let run = move || match missing {
            Some(why) => Err(Failed::from(why)),
            None => {
                run_file(&case, bless).map_err(|e| Failed::from(format!("{}\n{e:#}", case.path.display())))
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
