//! What a build without optional features says of what it lacks.

#[cfg(not(feature = "optimal"))]
#[test]
fn exact_mode_needs_its_feature() {
    use tileas_codegen::schedule::{Problem, ScheduleOptions, Scheduler, SchedulerChoice};
    let o = ScheduleOptions { scheduler: SchedulerChoice::Optimal, ..ScheduleOptions::default() };
    let error = Scheduler::new().schedule(&Problem::new("t"), &o).expect_err("not in this build");
    assert_eq!(error.code.as_str(), "E0409");
    assert!(error.message.contains("--features optimal"), "{error}");
    let mut settings = tileas_codegen::Settings::builder();
    let refused = settings.set("scheduler", "optimal").expect_err("not in this build");
    assert_eq!((refused.code, refused.message), (error.code.into(), error.message));
    assert!(settings.set("scheduler", "cost").is_ok());
}
