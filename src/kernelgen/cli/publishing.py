"""The command that ships: publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelgen import console
from kernelgen.cli._common import Root, Word, load_project, one_folder

if TYPE_CHECKING:
    from kernelgen.hub import PublishPlan

app = typer.Typer()


@app.command()
def publish(
    folder: Word = None,
    project: Root = Path(),
    repo_id: Annotated[str | None, typer.Option(help="Repository, instead of build.toml's.")] = None,
    branch: Annotated[str | None, typer.Option(help="Branch for the builds, instead of v<version>.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag the release: v<version>.<minor>.<patch>.")] = None,
    create_repo: Annotated[bool, typer.Option("--create-repo", help="Create the repository.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Create it as a private one.")] = False,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open pull requests instead.")] = False,
    keep_variants: Annotated[
        bool, typer.Option("--keep-variants", help="Leave published variants that this release lacks.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output_json: Annotated[Path | None, typer.Option(help="Write the result to a file.")] = None,
) -> None:
    """Upload the builds to the version branch and the card to main, on the Hub.

    \b
    kernelgen publish --dry-run
    kernelgen publish --tag v1.0.0
    """
    import sys

    from kernelgen import hub, toolchain

    options = hub.PublishOptions(
        repo_id=repo_id,
        branch=branch,
        tag=tag,
        create_repo=create_repo,
        private=private,
        create_pr=create_pr,
        keep_variants=keep_variants,
        dry_run=dry_run,
    )
    asks = not yes and not dry_run and sys.stdin.isatty()
    with console.bar() as bar:

        def confirm(plan: PublishPlan) -> bool:
            bar.stop()
            _show(plan)
            return typer.confirm("Publish this?")

        loaded = load_project(one_folder(project, folder))
        done = hub.publish(loaded, options, progress=bar, confirm=confirm if asks else None)
    if output_json:
        toolchain.write_atomically(output_json, json.dumps(done.to_json(), indent=2) + "\n")
    if not asks:
        _show(done.plan)
    out = console.make()
    for name, commit in done.commits.items():
        out.print(f"{name}: commit {commit[:12]}", markup=False)
    for name, url in done.pull_requests.items():
        out.print(f"{name}: {url}", markup=False)
    out.print(done.status.replace("_", " "), markup=False)


def _show(plan: PublishPlan) -> None:
    """What would change, file by file."""
    out = console.make()
    out.print(f"{plan.url} as {plan.user}", markup=False)
    if plan.creates_repo:
        out.print(
            f"  creates the {'private ' if plan.private else ''}repository {plan.repo_id}", markup=False
        )
    for part in (plan.release, plan.card):
        state = "" if part.exists else " (new)"
        out.print(f"  branch {part.branch}{state}: {part.unchanged} files unchanged", markup=False)
        for change in part.changes:
            out.print(f"    {change.kind:6} {change.path} ({change.size} bytes)", markup=False)
    for name in plan.removed_variants:
        out.print(f"  removes variant {name}", markup=False)
    if plan.tag and plan.creates_tag:
        out.print(f"  tags {plan.tag}", markup=False)
    if plan.api and (plan.api.added or plan.api.removed):
        out.print(plan.api.table, markup=False)
    for warning in plan.warnings:
        out.print(f"  warning: {warning}", markup=False)
