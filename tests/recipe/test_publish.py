"""What a recipe tells of a dataset's makers: bounded plain lines, addresses that may be opened, and no hash."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.recipe.loader import load_recipe_text

TOLD = (
    "publish.authors=['Jane Doe', 'Müller, Jörg', '{Institute of Things}']",
    "publish.year=2026",
    "publish.version='1.2.0'",
    "publish.url=https://example.org/cranes?of=birds&x=%7B",
    "publish.doi=10.5281/zenodo.1234567",
    "publish.contact=cranes@example.org",
)


def test_what_is_told_is_kept_and_enters_no_hash() -> None:
    plain, told = load_recipe("wardrobe-mini"), load_recipe("wardrobe-mini", TOLD)
    assert told.publish.authors == ("Jane Doe", "Müller, Jörg", "{Institute of Things}")
    assert (told.publish.year, told.publish.version) == (2026, "1.2.0")
    assert (told.plan_hash, told.screen_hash) == (plain.plan_hash, plain.screen_hash)
    assert told.recipe_hash == plain.recipe_hash
    assert load_recipe_text(told.portable_yaml).publish == told.publish


def test_a_recipe_that_tells_nothing_is_written_as_before() -> None:
    written = load_recipe("wardrobe-mini").portable_yaml
    publish = written[written.index("\npublish:") :]
    assert publish.splitlines()[1:] == ["publish:", "  private: true", "  tags: []"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("publish.authors=[]", "publish.authors.*found 0 authors"),
        ("publish.authors=['']", "publish.authors.*found nothing, expected an author"),
        ("publish.authors=['{ }']", "braces without a name"),
        (f"publish.authors=['{'a' * 201}']", "found 201 characters, expected an author of at most 200"),
        (f"publish.authors=[{', '.join(['a'] * 1001)}]", "found 1,001 authors"),
        ('publish.authors=["Jane\\nDoe"]', "without control characters"),
        ('publish.authors=["Jane\\u202EDoe"]', "without control characters"),
        ("publish.authors=Jane", "publish.authors.*expected a list"),
        ("publish.year=26", "publish.year.*expected a whole number from 1900 to 2999"),
        ("publish.year='2026'", "publish.year.*write it without quotes"),
        ("publish.version=1.0", "publish.version.*put it in quotes"),
        ('publish.version="1\\u00000"', "expected a version without control characters"),
        ("publish.url=ftp://example.org", "publish.url.*expected an address such as https://"),
        ("publish.url=javascript:alert(1)", "publish.url.*expected an address"),
        ("publish.url=https://", "publish.url.*expected an address"),
        ("publish.url='https://example.org/a b'", "publish.url.*expected an address"),
        ("publish.url='https://example.org/<b>'", "publish.url.*expected an address"),
        ("publish.url='https://example.org/{a}'", "publish.url.*expected an address"),
        ("publish.url='https://[::1/'", "publish.url.*expected an address"),
        ("publish.url=https://example.org:99999/", "publish.url.*expected an address"),
        (f"publish.url=https://example.org/{'a' * 500}", "publish.url.*at most 500 characters"),
        ("publish.doi=zenodo.1234", "publish.doi.*expected a DOI such as '10.1234/abc'"),
        ("publish.doi=https://doi.org/10.5281/zenodo.1", "did you mean '10.5281/zenodo.1'"),
        ("publish.doi=10.5281/a}b", "publish.doi.*expected a DOI"),
        (f"publish.doi=10.5281/{'a' * 200}", "publish.doi.*expected a DOI"),
        ("publish.contact=' '", "found nothing, expected a contact"),
        ('publish.contact="a\\tb"', "expected a contact without control characters"),
        ("publish.autors=['Jane']", "did you mean 'authors'"),
    ],
)
def test_what_is_no_such_thing_is_refused(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe("wardrobe-mini", [change])


def test_a_secret_in_an_address_is_not_shown() -> None:
    text = load_recipe("wardrobe-mini", TOLD).portable_yaml.replace("//example", "//jane:hf_secret@example")
    with pytest.raises(UserError, match="with a name or a password in it") as refused:
        load_recipe_text(text)
    assert "hf_secret" not in str(refused.value)
