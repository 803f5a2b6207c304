//! What cannot be tuned is said with a code, before anything is looked at.

use tileas_codegen::{Context, Settings};
use tileas_tune::{Argument, Axis, Code, Error, Search, Space, Tuner};

const GEMM: &str = include_str!("../../examples/gemm_f16.tileas");

fn tuner(axes: &[&str], args: &[(&str, &str)]) -> Result<Tuner, Error> {
    let module = Context::new().parse(GEMM, &Settings::default()).expect("the example parses");
    let space = Space::new(axes.iter().map(|a| Axis::parse(a)).collect::<Result<_, _>>()?)?;
    let args = args.iter().map(|&(name, text)| (name.to_owned(), Argument::Text(text.to_owned()))).collect();
    Tuner::new(&module, "gemm_bias_relu", &Settings::default(), space, args)
}

const ARGS: &[(&str, &str)] =
    &[("a", "512x512"), ("b", "512x512"), ("bias", "512"), ("c", "512x512"), ("kt", "8")];

fn with(name: &str, text: &'static str) -> Vec<(&'static str, &'static str)> {
    ARGS.iter().map(|&(n, t)| (n, if n == name { text } else { t })).collect()
}

#[test]
fn each_code() {
    let refused = |code: Code, axes: &[&str], args: &[(&str, &str)], part: &str| {
        let Err(error) = tuner(axes, args) else { panic!("{axes:?} {args:?}: taken") };
        assert_eq!(error.code, code.as_str(), "{axes:?} {args:?}: {error}");
        assert!(error.message.contains(part), "{part}: {error}");
    };
    for (axes, part) in [
        (&["bm"] as &[&str], "expected"),
        (&["bm=c.d0:"], "not ``"),
        (&["bm=c.d0:64,x"], "`x`"),
        (&["bm=c.d0:63"], "63"),
        (&["nothing=1,2"], "nothing"),
        (&["pipeline-depth=5..2"], "pipeline-depth"),
        (&["bm=c.d0:64", "bm=c.d1:64"], "two axes"),
    ] {
        refused(Code::E1501, axes, ARGS, part);
    }
    for (axes, part) in [
        (&["bm=d.d0:64,128"] as &[&str], "no parameter d"),
        (&["bm=c.d2:64,128"], "c.d2"),
        (&["bm=kt.d0:64,128"], "kt.d0"),
        (&["bm=c.d0:64,128", "am=a.d0:64,128"], "the same extent"),
    ] {
        refused(Code::E1502, axes, ARGS, part);
    }
    for (name, text, part) in [
        ("a", "512", "a:"),
        ("a", "512xhundred", "extents such as"),
        ("kt", "ceildiv(a.d1", "kt:"),
        ("kt", "nobody + 1", "nobody"),
    ] {
        refused(Code::E1503, &["bm=c.d0:64,128"], &with(name, text), part);
    }
    refused(Code::E1503, &["bm=c.d0:64,128"], &ARGS[1..], "a: ");
    let mut more = ARGS.to_vec();
    more.push(("z", "1"));
    refused(Code::E1503, &["bm=c.d0:64,128"], &more, "z");
}

#[test]
fn points_that_do_not_work_say_why_and_the_search_goes_on() {
    // An accumulator of 1024 rows has no room.
    let tuner = tuner(&["bm=c.d0:16,128,1024"], ARGS).expect("a space");
    let mut search = Search::new(tuner.space(), tuner.start(), Some(3));
    let mut context = Context::new();
    let mut errors = Vec::new();
    loop {
        let batch = search.next_batch();
        if batch.is_empty() {
            break;
        }
        for point in batch {
            let look = tuner.look(&mut context, &point);
            assert_eq!(look.time.is_some(), look.error.is_none());
            errors.extend(look.error.clone());
            search.tell(&point, look.time.is_some().then(|| look.cost()));
        }
    }
    assert!(errors.iter().all(|e| e.starts_with('E')), "{errors:?}");
    assert!(!errors.is_empty() && search.best().is_some(), "{errors:?}");
}
