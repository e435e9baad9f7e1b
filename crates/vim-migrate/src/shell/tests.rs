//! Words, commands and lines of scripts.

use super::*;

fn plain(text: &str) -> Vec<Vec<String>> {
    let show = |word: &Word| {
        word.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable { name, default: None, .. } => format!("<{name}>"),
                Piece::Variable { name, default: Some(value), .. } => {
                    format!("<{name}|{value}>")
                }
                Piece::Computed(raw) => format!("[{raw}]"),
            })
            .collect()
    };
    let commands = commands(text).unwrap();
    commands.iter().map(|command| command.words.iter().map(show).collect()).collect()
}

#[test]
fn words_and_commands() {
    for (text, expected) in [
        ("a b\\\n  c # d\ne", vec![vec!["a", "b", "c"], vec!["e"]]),
        ("a 'b c' \"d $E f\" ''", vec![vec!["a", "b c", "d <E> f", ""]]),
        ("a;b && c | d &", vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"]]),
        ("a > log 2>&1 b", vec![vec!["a", "b"]]),
        ("X=${1:-0}y$2 Z=${HOME}", vec![vec!["X=<1|0>y<2>", "Z=<HOME>"]]),
        ("P=$((1 + $(id))) Q=`ls x`", vec![vec!["P=[$((1 + $(id)))]", "Q=[`ls x`]"]]),
        ("a#b \\# c", vec![vec!["a#b", "#", "c"]]),
        ("a --x <path_to y>/z b", vec![vec!["a", "--x", "<path_to y>/z", "b"]]),
        ("a <in >out 2>log <x>y", vec![vec!["a"]]),
        ("S=(0 \"1\" # 2\n 3) a", vec![vec!["S=0 1 3", "a"]]),
        ("for x in \"${S[@]}\"", vec![vec!["for", "x", "in", "<S>"]]),
        ("read S <<< \"$X\"", vec![vec!["read", "S", "<<<", "<X>"]]),
        ("a \\\r\nb", vec![vec!["a", "\r"], vec!["b"]]),
    ] {
        assert_eq!(plain(text), expected, "{text}");
    }
}

#[test]
fn lines_are_counted() {
    let commands = commands("#!/bin/bash\n\na \\\n  b \\\n  c\nd; e").unwrap();
    let lines: Vec<_> = commands[0].words.iter().map(|word| word.line).collect();
    assert_eq!((lines, commands[0].last_line), (vec![3, 4, 5], 5));
    assert_eq!((commands[1].last_line, commands[1].starts_line), (6, true));
    assert!(!commands[2].starts_line);
}

#[test]
fn what_is_not_closed_is_placed() {
    for (text, line) in [("a\nb 'c\nd", 2), ("\"", 1), ("x\n${A", 2), ("$(a", 1), ("`a", 1)] {
        assert_eq!(super::commands(text).unwrap_err().line, Some(line), "{text}");
    }
}
