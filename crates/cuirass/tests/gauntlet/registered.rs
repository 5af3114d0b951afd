//! The registration check: every public function of the crate is in the registry, and the family lists name every
//! status that the seam takes as an answer.

use crate::Family;
use cuirass_testkit::calls;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{ImplItem, Item, TraitItem, Type, Visibility};

/// Public functions that no operation of the registry is, each with its reason.
const LEFT_OUT: [(&str, &str); 2] = [
    ("MemoryResource::allocate", "the trait's own; each resource of the crate is registered"),
    ("MemoryResource::deallocate", "the trait's own; each resource of the crate is registered"),
];
/// Functions of these traits are operations.
const TRAITS: [&str; 1] = ["MemoryResource"];

/// What is not registered, and what is registered and not there.
pub fn check(families: &[Family]) -> Vec<String> {
    let folder = calls::repository().join("crates/cuirass/src");
    let mut public = BTreeSet::new();
    for file in sources(&folder) {
        read(&file, &mut public);
    }
    let registered: BTreeSet<String> =
        families.iter().flat_map(|(_, operations)| operations()).map(|operation| operation.name.to_owned()).collect();
    let mut wrong = Vec::new();
    for name in &public {
        let known = registered.contains(name) || LEFT_OUT.iter().any(|(left_out, _)| left_out == name);
        if !known {
            wrong.push(format!("{name}: a public operation without a place in crates/cuirass/tests/gauntlet"));
        }
    }
    for name in &registered {
        if !name.ends_with(" (dropped)") && !public.contains(name) {
            wrong.push(format!("{name}: in the registry, and not a public function of the crate"));
        }
    }
    wrong.extend(answers());
    if public.len() < 100 {
        wrong.push(format!("only {} public functions were found: the check looks in the wrong place", public.len()));
    }
    wrong
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read(file: &Path, public: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(file).expect("a source file");
    let parsed = syn::parse_file(&text).expect("Rust");
    // Functions outside types are known by their module where that is public.
    let module = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    for item in parsed.items {
        match item {
            Item::Fn(function) if is_public(&function.vis) => {
                let name = function.sig.ident.to_string();
                let qualified = matches!(module.as_str(), "driver" | "testing");
                // What a module that is not public has is named by the crate itself, where it exports it.
                let exported = if qualified { Some(format!("{module}::{name}")) } else { exported_as(&name) };
                public.extend(exported);
            }
            Item::Impl(block) => {
                let of_trait = block.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                let listed = of_trait.is_some_and(|name| TRAITS.iter().any(|listed| name.ident == listed));
                let Type::Path(of) = &*block.self_ty else { continue };
                let Some(of) = of.path.segments.last() else { continue };
                for item in block.items {
                    if let ImplItem::Fn(function) = item
                        && (listed || (of_trait.is_none() && is_public(&function.vis)))
                    {
                        public.insert(format!("{}::{}", of.ident, function.sig.ident));
                    }
                }
            }
            Item::Trait(block) if is_public(&block.vis) && TRAITS.iter().any(|listed| block.ident == listed) => {
                for item in block.items {
                    if let TraitItem::Fn(function) = item
                        && function.default.is_some()
                    {
                        public.insert(format!("{}::{}", block.ident, function.sig.ident));
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The name that the crate, or one of its public modules, exports a function of a private module by.
fn exported_as(name: &str) -> Option<String> {
    let source = calls::repository().join("crates/cuirass/src");
    for root in sources(&source).into_iter().filter(|file| file.ends_with("lib.rs") || file.ends_with("mod.rs")) {
        let text = std::fs::read_to_string(root).expect("a source file");
        for line in text.split(';').map(str::trim).filter_map(|item| item.rsplit_once("pub use ")) {
            let words: Vec<&str> = line.1.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            if let Some(at) = words.iter().position(|word| *word == name) {
                let renamed = words.get(at + 1) == Some(&"as");
                return words.get(if renamed { at + 2 } else { at }).map(ToString::to_string);
            }
        }
    }
    None
}

/// The answers that the seam's source has and the lists have not, and the other way round.
fn answers() -> Vec<String> {
    let mut in_source = BTreeSet::new();
    for file in sources(&calls::repository().join("crates/cuirass-call/src")) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for call in code.join("\n").split("entry!(").skip(1) {
            let Some((name, rest)) = call.split_once(')') else { continue };
            // What follows up to the end of this call's statement.
            let statement = rest.split("entry!(").next().unwrap_or(rest).split("?;").next().unwrap_or(rest);
            for answer in statement.split("answers ").skip(1) {
                let answer = answer.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                in_source.insert((name.to_owned(), answer.to_owned()));
            }
        }
    }
    in_source
        .retain(|(name, answer)| name.starts_with("cu") && answer.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    let listed: BTreeSet<(String, String)> = in_lists();
    let missing = in_source
        .difference(&listed)
        .map(|(name, answer)| format!("{name}: families/ does not list its answer {answer}"));
    let extra = listed
        .difference(&in_source)
        .map(|(name, answer)| format!("{name}: the seam does not take {answer} as an answer"));
    missing.chain(extra).collect()
}

fn in_lists() -> BTreeSet<(String, String)> {
    let mut listed = BTreeSet::new();
    for (name, answers) in calls::with_answers() {
        listed.extend(answers.into_iter().map(|answer| (name.clone(), answer)));
    }
    listed
}
