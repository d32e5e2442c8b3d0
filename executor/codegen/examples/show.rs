//! Shows the kernel of a plan, `show PLAN.json [RANK] [DTYPE] [cuda|hip]`, or the one that interprets any, `show interpreter [DTYPE]
//! [cuda|hip]`.

use antiphon_codegen::{Target, Variant, generate, interpret};
use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, read};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, other| arguments.get(at).map_or(other, String::as_str);
    let path = arguments.first().ok_or("cannot show a kernel: saw no plan; name its file")?;
    if path == "interpreter" {
        let target = if argument(2, "cuda") == "hip" { Target::Hip } else { Target::Cuda };
        print!("{}", interpret::text(target, argument(1, "f32").parse()?));
        return Ok(());
    }
    let plan = read(&std::fs::read(path)?)?.plan;
    let target = if argument(3, "cuda") == "hip" { Target::Hip } else { Target::Cuda };
    let variant = Variant { target, dtype: argument(2, "f32").parse::<DataType>()?, op: None };
    let generated = generate(&Layout::new(&plan)?, argument(1, "0").parse()?, variant)?;
    print!("{}", generated.text);
    Ok(())
}
