//! What two texts of one kernel are compared by.
//!
//! In: PTX, and what the assembler said of it (`ptxas -v`). Out: [`Figures`], all counts of what is written, none of time.

/// Counts of one kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Instructions of the smallest loop with a product in it; of the kernel where none has one.
    pub main_loop: usize,
    /// Instructions of the kernel.
    pub instructions: usize,
    /// Barriers in shared memory, and instructions that wait for other warps without one.
    pub barriers: usize,
    /// Registers of a thread.
    pub registers: usize,
}

impl Figures {
    /// Those of PTX as the compiler writes it: a line each for labels and instructions, loops ended by a branch up.
    pub fn of(ptx: &str, said: &str) -> Figures {
        let lines: Vec<&str> =
            ptx.lines().map(str::trim).filter(|l| l.ends_with(';') || l.starts_with('$')).collect();
        let body = lines.iter().position(|l| !l.starts_with('.')).unwrap_or(0);
        let lines = &lines[body..];
        let instructions = |lines: &[&str]| lines.iter().filter(|l| !l.starts_with(['$', '.'])).count();
        let product = |l: &&str| l.contains("wgmma.mma_async") || l.contains("tcgen05.mma");
        let count = |word: &str| lines.iter().filter(|l| l.contains(word)).count();
        let begin = |(end, line): (usize, &&str)| {
            let label = line.split_once("bra $")?.1.trim_end_matches(';');
            let is_it = |l: &&str| l.strip_prefix('$').and_then(|l| l.split(':').next()) == Some(label);
            Some(&lines[lines[..end].iter().position(is_it)?..=end])
        };
        let loops = lines.iter().enumerate().filter_map(begin).filter(|l| l.iter().any(product));
        let registers = said.split_once("Used ").and_then(|(_, s)| s.split(' ').next()?.parse().ok());
        Figures {
            main_loop: loops.map(instructions).min().unwrap_or_else(|| instructions(lines)),
            instructions: instructions(lines),
            barriers: count("mbarrier.init")
                + count("bar.sync")
                + count("bar.arrive")
                + count("barrier.sync"),
            registers: registers.unwrap_or(0),
        }
    }

    /// The largest share of another's figures that these have.
    pub fn share_of(&self, other: &Figures) -> f64 {
        let pairs = [
            (self.main_loop, other.main_loop),
            (self.instructions, other.instructions),
            (self.barriers, other.barriers),
            (self.registers, other.registers),
        ];
        // What is not there at all counts as one.
        pairs.iter().map(|&(a, b)| (a as f64 + 1.0) / (b as f64 + 1.0)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_loop_with_a_product_counts() {
        let ptx = ".visible .entry k()\n{\n    .reg .b32 %r<2>;\n    mbarrier.init.shared::cta.b64 [%r1], 1;\n$L1:\n    mov.b32 %r0, 1;\n\
                   $L2: // WAIT\n    @%p1 bra $L2;\n    wgmma.mma_async.x;\n    @%p2 bra $L1;\n    bar.sync 0;\n    @%p2 bra $L1;\n    ret;\n}\n";
        let f = Figures::of(ptx, "ptxas info    : Used 42 registers, used 1 barriers");
        assert_eq!(f, Figures { main_loop: 4, instructions: 8, barriers: 2, registers: 42 });
        assert!((f.share_of(&Figures { main_loop: 1, ..f }) - 2.5).abs() < 1e-9);
    }
}
