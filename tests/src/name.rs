//! Names of tests.

/// The name by which the test program knows a test, and is told to run it: its path within the program.
pub fn name_of<R, T: Fn() -> R>(_: T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.split_once("::").map_or(path, |(_, within)| within)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_the_path_within_the_program() {
        let name = super::name_of(a_name_is_the_path_within_the_program);
        assert_eq!(name, "name::tests::a_name_is_the_path_within_the_program");
    }
}
