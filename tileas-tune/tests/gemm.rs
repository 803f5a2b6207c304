//! GEMM over its whole space: what the search finds against the best there is.

use tileas_codegen::{Context, Settings};
use tileas_tune::{Argument, Axis, Look, Search, Space, Tuner};

const GEMM: &str = include_str!("../../examples/gemm_f16.tileas");

fn space() -> Space {
    let axes = [
        "bm=c.d0:64,128",
        "bn=c.d1:32,64,128,256",
        "bk=a.d1:16,32,64,128",
        "pipeline-depth=2..6",
        "simt-warps=4,8",
    ];
    Space::new(axes.iter().map(|a| Axis::parse(a).unwrap()).collect()).unwrap()
}

fn tuner(m: i64, n: i64, k: i64) -> Tuner {
    let module = Context::new().parse(GEMM, &Settings::default()).unwrap();
    let view = |name: &str, extents: &[i64]| (name.to_owned(), Argument::View(extents.to_vec(), None));
    let args = vec![
        view("a", &[m, k]),
        view("b", &[n, k]),
        view("bias", &[n]),
        view("c", &[m, n]),
        ("kt".to_owned(), Argument::Text("ceildiv(a.d1, bk)".into())),
    ];
    Tuner::new(&module, "gemm_bias_relu", &Settings::default(), space(), args).unwrap()
}

fn us(look: &Look) -> f64 {
    look.time.as_ref().map_or(f64::INFINITY, |t| t.us)
}

#[test]
fn a_fifth_of_the_space_is_enough() {
    for (m, n, k) in [(4096, 4096, 4096), (512, 8192, 1024), (200, 264, 136)] {
        let tuner = tuner(m, n, k);
        let mut context = Context::new();
        let all: Vec<Look> = tuner.space().all().map(|p| tuner.look(&mut context, &p)).collect();
        let best = all.iter().min_by(|a, b| us(a).total_cmp(&us(b))).unwrap();
        let mut search = Search::new(tuner.space(), tuner.start(), None);
        let mut looks = 0;
        loop {
            let batch = search.next_batch();
            if batch.is_empty() {
                break;
            }
            looks += batch.len();
            for point in batch {
                let look = tuner.look(&mut context, &point);
                search.tell(&point, look.time.is_some().then(|| look.cost()));
            }
        }
        let (point, found) = search.best().unwrap();
        let working = all.iter().filter(|l| l.time.is_some()).count();
        println!(
            "{m} x {n} x {k}: {working} of {} work; best {:?}\n  found {point:?} {found} after {looks}",
            all.len(),
            best
        );
        for error in all.iter().filter_map(|l| l.error.as_deref()).take(3) {
            println!("  {error}");
        }
        assert!(looks * 5 <= all.len(), "{looks} looks of {}", all.len());
        assert!(found <= us(best) * 1.05, "{found} where {} is the best", us(best));
    }
}
