"""What the syntax check says of code that is right, and of code that is not.

    python benchmarks/syntax_errors.py whole TREE            every file as it is: each message is a false one
    python benchmarks/syntax_errors.py commits CLONE RANGE   every file that a commit changes: the same
    python benchmarks/syntax_errors.py planted TREE [PATH]   syntax errors at random places: what is found

TREE is a folder with llama.cpp's files, CLONE a git clone with its history. Of a plain patch a syntax error
that is proven is refused and one that is not is a warning; of a guarded patch both are refused.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.source import SourceText, Span
from patchkit.base.upstreams import recognise, upstream_of
from patchkit.carry.cpp.ast import is_cpp
from patchkit.carry.cpp.doubt import Names, find_misspelt
from patchkit.carry.cpp.lexer import Token, TokenKind
from patchkit.carry.cpp.scopes import CLOSING, OPENING, ScopeMap, parse_scopes
from patchkit.carry.placing.confirm import find_new_issues
from patchkit.carry.placing.tree import UpstreamFiles, header_folders

Answer = Literal["refused", "refused by brackets", "warned", "nothing"]

GIT = shutil.which("git") or "/usr/bin/git"

ANSWERS: tuple[Answer, ...] = ("refused", "refused by brackets", "warned", "nothing")

PLANTED = (
    "ggml/src/ggml-cuda/fattn-tile.cuh", "ggml/src/ggml-cuda/mmvq.cu", "ggml/src/ggml-cuda/mmq.cuh",
    "ggml/src/ggml-cuda/ggml-cuda.cu", "ggml/src/ggml-cuda/softmax.cu", "ggml/src/ggml-cuda/fattn.cu",
    "ggml/src/ggml-backend.cpp", "ggml/src/ggml-cpu/ops.cpp", "ggml/src/ggml.c",
    "tools/server/server.cpp", "tools/server/server-context.cpp", "src/llama-context.cpp",
    "src/llama-model.cpp", "src/llama-graph.cpp", "common/common.cpp", "common/arg.cpp",
)  # fmt: skip


def folder_files(tree: Path) -> UpstreamFiles:
    """The files of a folder, read as those of an upstream commit are."""
    names = [
        Path(folder, name).relative_to(tree).as_posix()
        for folder, _, files in os.walk(tree)
        for name in files
    ]
    headers = header_folders(upstream_of(tree))
    base = {name: (tree / name).read_bytes() for name in names if name.rpartition("/")[0] in headers}

    def read(more: Sequence[str]) -> Mapping[str, bytes]:
        return {name: (tree / name).read_bytes() for name in more}

    return UpstreamFiles(base, names, read)


def git(clone: Path, *args: str) -> bytes:
    """What git prints."""
    return subprocess.run([GIT, "-C", str(clone), *args], check=True, capture_output=True).stdout


def commit_files(clone: Path, commit: str) -> UpstreamFiles:
    """The files of a commit; a snapshot may lack some, which are then as if they were not there."""
    names = git(clone, "ls-tree", "-r", "--name-only", "-z", commit).decode().split("\0")[:-1]

    def read(more: Sequence[str]) -> Mapping[str, bytes]:
        asked = "".join(f"{commit}:{name}\n" for name in more).encode()
        command = [GIT, "-C", str(clone), "cat-file", "--batch", "--buffer"]
        data = subprocess.run(command, input=asked, check=True, capture_output=True).stdout
        found: dict[str, bytes] = {}
        for name in more:
            head, _, data = data.partition(b"\n")
            if head.endswith(b" missing"):
                continue
            size = int(head.rsplit(b" ", 1)[1])
            found[name], data = data[:size], data[size + 1 :]
        return found

    headers = header_folders(recognise(names.__contains__))
    base = [name for name in names if name.rpartition("/")[0] in headers and is_cpp(name)]
    return UpstreamFiles(read(base), names, read)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a plain patch and a guarded one get for a change, why, and in which time."""

    plain: Answer
    guarded: bool
    messages: tuple[str, ...]
    seconds: float


def judge(files: UpstreamFiles, old: SourceText, new: SourceText, spans: Sequence[Span]) -> Verdict:
    """The verdict about a change of one file; ``spans`` are where it is in the new text."""
    start = time.perf_counter()
    before, after = parse_scopes(old), parse_scopes(new)
    unbalanced = _unmatched(after) > _unmatched(before)
    (trees,) = files.plain_trees([new], (), {})
    found = []
    if any(tree.issues for tree in trees.values()):
        (base,) = files.plain_trees([old], (), {}, with_names=True)
        found = list(find_new_issues(before, after, spans, base, trees))
    slips = list(find_misspelt(after, {token.text for token in before.code}))
    if slips:
        (named,) = files.plain_trees([new], (), {}, with_names=True)
        names = [Names(tree) for tree in named.values()]
        slips = [(name, word) for name, word in slips if any(each.is_unknown(name.text) for each in names)]
    messages = tuple(
        f"{new.locate(each.issue.offset)}: {each.issue.message}"
        f" [{'elsewhere' if each.elsewhere else each.doubt or 'proven'}]"
        for each in found
    ) + tuple(f"{name.text.decode()}: {word}?" for name, word in slips)
    plain: Answer = "warned" if found or slips else "nothing"
    if any(each.is_proven for each in found):
        plain = "refused"
    elif unbalanced:
        plain = "refused by brackets"
    return Verdict(plain, bool(found), messages, time.perf_counter() - start)


def _unmatched(scopes: ScopeMap) -> int:
    brackets = {*OPENING, *CLOSING}
    return sum(token.text in brackets and i not in scopes.match for i, token in enumerate(scopes.code))


def changed_spans(old: bytes, new: bytes) -> list[Span]:
    """Where the lines of the new text differ from the old one's."""
    lines = new.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old.splitlines(keepends=True), lines, autojunk=False)
    return [
        Span(starts[first], starts[last])
        for tag, _, _, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]


def whole(tree: Path) -> None:
    """Prints every message about a file as it is."""
    files = folder_files(tree)
    paths = sorted(path for path in files.names if is_cpp(path) and not path.startswith("vendor/"))
    bad, messages, start = Counter[str](), 0, time.perf_counter()
    for path in paths:
        source = SourceText(path, (tree / path).read_bytes())
        (trees,) = files.plain_trees([source], (), {})
        issues = [issue for parsed in trees.values() for issue in parsed.issues]
        if issues:
            bad["/".join(path.split("/")[:3]) if path.startswith("ggml/") else path.split("/")[0]] += 1
            messages += len(issues)
    print(f"{len(paths)} files, {bad.total()} with messages, {messages} messages,", end=" ")
    print(f"{time.perf_counter() - start:.0f} s; {dict(bad.most_common())}")


def commits(clone: Path, revisions: str, limit: int) -> None:
    """Prints what is said of each file that a commit changes; a commit counts once, by its worst file."""
    listed = git(clone, "rev-list", "--no-merges", "--reverse", *revisions.split()).decode().split()
    step = max(len(listed) // limit, 1)
    tried: Counter[str] = Counter()
    by_file: Counter[Answer] = Counter()
    guarded, seconds = 0, []
    for commit in listed[::step][:limit]:
        worst: set[Answer] = set()
        took = 0.0
        for path in (
            git(clone, "diff-tree", "-r", "--diff-filter=M", "--name-only", "-z", f"{commit}^", commit)
            .decode()
            .split("\0")
        ):
            if not is_cpp(path) or path.startswith("vendor/"):
                continue
            old, new = (git(clone, "show", f"{each}:{path}") for each in (f"{commit}^", commit))
            files = commit_files(clone, commit)
            verdict = judge(files, SourceText(path, old), SourceText(path, new), changed_spans(old, new))
            by_file[verdict.plain] += 1
            guarded += verdict.guarded
            worst.add(verdict.plain)
            took += verdict.seconds
            if verdict.plain != "nothing":
                print(f"{commit[:10]} {path}: {verdict.plain}: {'; '.join(verdict.messages[:3])}")
        if worst:
            tried[next(answer for answer in ANSWERS if answer in worst)] += 1
            seconds.append(took)
    print(f"{tried.total()} commits: {dict(tried)}; {by_file.total()} files: {dict(by_file)},", end=" ")
    print(
        f"{guarded} with a new message; {sum(seconds) / max(len(seconds), 1):.2f} s a commit, at most",
        end=" ",
    )
    print(f"{max(seconds, default=0):.1f} s")


_KEYWORDS = {b"const": b"cosnt", b"return": b"retrun", b"static": b"sttaic", b"for": b"fro", b"if": b"fi"}


def plant(scopes: ScopeMap, chance: random.Random) -> tuple[str, bytes, int] | None:
    """One syntax error somewhere in a function: its kind, the whole text and the place; None: none fits."""
    kind = chance.choice(("no ;", "no )", "no (", "no }", "no {", "no ,", "keyword", "half"))
    inside = [entity for entity in scopes.entities if entity.kind == "function"]
    if not inside:
        return None
    span = chance.choice(inside).body
    code, data = scopes.code, scopes.source.data
    positions = [index for index in scopes.code_in(span) if _fits(code, index, kind)]
    if not positions:
        return None
    token = code[chance.choice(positions)]
    end, text = token.span.end, b""
    if kind == "keyword":
        text = _KEYWORDS[token.text]
    if kind == "half":  # from behind an = to in front of the ;
        index = code.index(token) + 1
        while code[index].text not in (b";", b"{", b"}"):
            end = code[index].span.end
            index += 1
        text = b"="
    return kind, data[: token.span.start] + text + data[end:], token.span.start


def _fits(code: tuple[Token, ...], index: int, kind: str) -> bool:
    token = code[index]
    if kind == "keyword":
        return token.text in _KEYWORDS
    if kind == "half":
        return token.text == b"=" and code[index + 1].text != b"{"
    # Behind a } a ; may stand for nothing, and what is behind a comma too: f(a, ) is none of these.
    return (
        token.kind is TokenKind.PUNCTUATION
        and token.text == kind[-1:].encode()
        and (
            kind != "no ;"
            or code[index - 1].text not in (b"}", b";", b")", b"{")
            or (code[index - 1].text == b")" and code[index + 1].kind is TokenKind.IDENTIFIER)
        )
    )


def planted(tree: Path, paths: Sequence[str], count: int, seed: int) -> None:
    """Prints of each file, and of each kind of error, how many were found."""
    files, chance = folder_files(tree), random.Random(seed)  # noqa: S311 - places, no secrets
    by_file: dict[str, Counter[Answer]] = {}
    by_kind: dict[str, Counter[Answer]] = {}
    guarded: Counter[str] = Counter()
    there = [path for path in paths if (tree / path).is_file()]
    for path in there:
        source = SourceText(path, (tree / path).read_bytes())
        scopes, made = parse_scopes(source), 0
        while made < count // len(there):
            found = plant(scopes, chance)
            if found is None:
                continue
            made += 1
            kind, text, place = found
            verdict = judge(files, source, SourceText(path, text), [Span(place, place)])
            by_file.setdefault(path, Counter())[verdict.plain] += 1
            by_kind.setdefault(kind, Counter())[verdict.plain] += 1
            guarded[path] += verdict.guarded
            if verdict.plain in ("nothing", "warned"):
                line = source.text(source.line_span(source.line_of(place))).decode(errors="replace").strip()
                print(f"  {verdict.plain}: {kind}: {source.locate(place)}: {line}: {verdict.messages[:2]}")
    for name, answers in (*by_file.items(), *by_kind.items(), ("all", _sum(by_file.values()))):
        told = ", ".join(f"{answers[answer]} {answer}" for answer in ANSWERS)
        print(
            f"{name}: {answers.total()}: {told}" + (f"; guarded: {guarded[name]}" if name in guarded else "")
        )
    print(f"guarded: {guarded.total()}")


def _sum(counters: Iterable[Counter[Answer]]) -> Counter[Answer]:
    total: Counter[Answer] = Counter()
    for each in counters:
        total += each
    return total


def main() -> int:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("whole", "commits", "planted"))
    parser.add_argument("place", type=Path, help="TREE or CLONE")
    parser.add_argument("more", nargs="*", help="a range of commits, or paths of files")
    parser.add_argument("--count", type=int, default=240, help="errors to plant, commits to try")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    if options.what == "whole":
        whole(options.place)
    elif options.what == "commits":
        commits(options.place, " ".join(options.more), options.count)
    else:
        planted(options.place, options.more or PLANTED, options.count, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
