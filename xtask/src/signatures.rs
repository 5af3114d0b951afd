//! Function signatures, as text, as the generators need them.

use anyhow::{Result, bail};
use quote::ToTokens as _;
use std::collections::BTreeMap;

/// One C function.
pub struct Signature {
    /// Its name in the library.
    pub name: String,
    /// Parameter names and types.
    pub params: Vec<(String, String)>,
    /// The return type.
    pub returns: String,
}

/// All functions, by name.
#[derive(Default)]
pub struct Signatures(BTreeMap<String, Signature>);

impl Signature {
    /// From a function that bindgen wrote.
    pub fn read(function: &syn::ForeignItemFn) -> Result<Signature> {
        let mut params = Vec::new();
        for input in &function.sig.inputs {
            let syn::FnArg::Typed(param) = input else { bail!("a receiver in C") };
            params.push((param.pat.to_token_stream().to_string(), tidy(&param.ty.to_token_stream().to_string())));
        }
        let returns = match &function.sig.output {
            syn::ReturnType::Default => "()".to_owned(),
            syn::ReturnType::Type(_, kind) => tidy(&kind.to_token_stream().to_string()),
        };
        Ok(Signature { name: function.sig.ident.to_string(), params, returns })
    }

    /// `a: A, b: B`
    pub fn declared(&self) -> String {
        self.params.iter().map(|(name, kind)| format!("{name}: {kind}")).collect::<Vec<_>>().join(", ")
    }

    /// `A, B`
    pub fn types(&self) -> String {
        self.params.iter().map(|(_, kind)| kind.clone()).collect::<Vec<_>>().join(", ")
    }

    /// `a, b`
    pub fn names(&self) -> String {
        self.params.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(", ")
    }
}

impl Signatures {
    /// Adds one.
    pub fn insert(&mut self, signature: Signature) {
        self.0.insert(signature.name.clone(), signature);
    }

    /// The signature of a call, or an error that says it is not in the header.
    pub fn get(&self, name: &str) -> Result<&Signature> {
        match self.0.get(name) {
            Some(signature) => Ok(signature),
            None => bail!("{name} is in a family's list, but not in the header"),
        }
    }

    /// All, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = &Signature> {
        self.0.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn tidy(tokens: &str) -> String {
    tokens.replace(" :: ", "::").replace(":: std", "::std").replace("* ", "*")
}
