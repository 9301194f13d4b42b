"""Are prices read as they are written, and nothing made up where one is missing?"""

from __future__ import annotations

import numpy as np
import pytest

from forecast.errors import InputError
from forecast.outlook.prices import Prices


def test_one_price_is_that_of_every_model() -> None:
    prices = Prices.parse("2.5")
    assert prices == Prices(2.5)
    assert [prices.of(model) for model in ("qwen-7b", "")] == [2.5, 2.5]
    assert prices.known


def test_prices_by_model_and_one_for_the_rest() -> None:
    prices = Prices.parse(" qwen-7b = 9, qwen-1b=2.5 ,1")
    assert prices == Prices(1.0, {"qwen-7b": 9.0, "qwen-1b": 2.5})
    assert [prices.of(model) for model in ("qwen-7b", "qwen-1b", "llama", "")] == [9, 2.5, 1, 1]


def test_a_model_may_be_named_with_an_equals_sign() -> None:
    assert Prices.parse("a=b=3").of("a=b") == 3


def test_without_prices_none_is_known() -> None:
    prices = Prices()
    assert not prices.known
    assert np.isnan(prices.of("qwen-7b"))


@pytest.mark.parametrize(
    ("model", "words"), [("llama", "no price for model 'llama'"), ("", "runs that declare no model")]
)
def test_a_missing_price_is_no_guess(model: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Prices.parse("qwen-7b=9").of(model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "price is no number, found ''"),
        ("cheap", "price is no number, found 'cheap'"),
        ("qwen=", "price is no number, found 'qwen='"),
        ("qwen=9,", "price is no number, found ''"),
        ("1,2", "prices not understood, found '1,2'"),
        ("=3", "prices not understood, found '=3'"),
        ("qwen=1,qwen=2", "prices not understood"),
        ("0", "a price must be positive, found 0"),
        ("-1", "a price must be positive, found -1"),
        ("qwen=nan", "a price must be positive, found nan"),
        ("1e999", "a price must be positive, found inf"),
        ("2,qwen=-3", "a price must be positive, found -3"),
    ],
)
def test_what_is_no_price_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        Prices.parse(text)
    assert words in str(error.value)
    assert "MODEL=PRICE" in str(error.value)
    assert "\n" not in str(error.value)
