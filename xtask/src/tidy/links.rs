//! Links in Markdown lead to files and headings that exist in the repository. Links to the outside
//! are not followed: the test command works without a network.

use super::tree::{Finding, Tree};

/// Every relative link of every Markdown file.
pub(crate) fn markdown(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            if let Some(problem) = problem_with(tree, path, target) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line,
                    what: format!("link to `{target}`: {problem}"),
                    why: "a reader who follows it finds nothing",
                    cure: "correct the link, or write what it should lead to",
                });
            }
        }
    }
}

/// The targets of inline links `[..](target)` and definitions `[..]: target`, with their lines;
/// code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in outside_fences(text) {
        // Every second piece between backquotes is code.
        for prose in line.split('`').step_by(2) {
            found.extend(prose.split("](").skip(1).map(|rest| (number, target_of(rest))));
        }
        if let Some((label, rest)) = line.split_once("]: ")
            && label.starts_with('[')
        {
            found.push((number, target_of(rest)));
        }
    }
    found
}

fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The target at the start: up to the closing bracket, or to the space before a title.
fn target_of(rest: &str) -> &str {
    rest.split([')', ' ']).next().unwrap_or(rest).trim_matches(['<', '>'])
}

fn problem_with(tree: &Tree, from: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) };
    let Some(path) = path else { return Some("it leads out of the repository") };
    if !tree.holds(&path) {
        return Some("no such file");
    }
    let Some(Some(text)) = tree.files.get(&path).filter(|_| path.ends_with(".md")) else {
        return None;
    };
    let exists = heading.is_empty() || headings(text).any(|(_, _, slug)| slug == heading);
    (!exists).then_some("no such heading")
}

/// `file` as seen from the folder of `from`; `None` when it leads out of the repository.
fn resolve(from: &str, file: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if let Some(absolute) = file.strip_prefix('/') {
        return Some(absolute.trim_end_matches('/').to_owned());
    }
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The headings: line, level, and the name by which one is linked: lower case, spaces as dashes,
/// punctuation dropped.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = (usize, usize, String)> {
    outside_fences(text).filter_map(|(number, line)| {
        let rest = line.trim_start_matches('#');
        let title = rest.strip_prefix(' ').filter(|_| rest != line)?;
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug = kept.collect::<String>().trim().to_lowercase().replace(' ', "-");
        Some((number, line.len() - rest.len(), slug))
    })
}
