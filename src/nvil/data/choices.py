"""What a user says about data where it does not say so itself. Imports nothing heavy: the command line starts here."""

import dataclasses
import math
from pathlib import Path

from nvil.errors import UsageError, above_zero, choose, count_of


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the user says about the data where it does not say so itself.

    - `values`: "binary", "counts" (of words), "numbers" (real ones), "categories" (each value the number of one, from
      0), or "auto", which takes the first two where they are unambiguous.
    - `binarize`: how grey levels become binary: "threshold", "stochastic" (every draw anew) or "none".
    - `threshold`: on from this value up; by default halfway between the smallest and the largest.
    - `white`: for stochastic binarization, the value that is certainly on; by default 1 for values up to 1, else 255.
    - `words`: of text, the size of the vocabulary.
    - `stop_words`: of text, "english" (the default) to leave those out, or "none".
    - `max_df`: of text, words in a larger share of the documents than this are left out; by default 0.5 from 100
      documents up, else 1.
    - `vocabulary`: of text, a file with the words to count, one per line, instead.
    - `first_index`: of svmlight files, 1 or 0.
    - `drop_columns`: of tables and arrays, columns that are not data, such as a label: each by its name in the header
      or by its place, from 0 (-1 is the last).
    - `given`: of tables and arrays, columns to condition on, named as those to drop, or a range of places such as
      "0-391", among the columns that are left; they come first in the cases.
    - `columns`: of a stream of `column:count` lines, how many columns there are.
    """

    values: str = "auto"
    binarize: str | None = None
    threshold: float | None = None
    white: float | None = None
    words: int = 10_000
    stop_words: str | None = None
    max_df: float | None = None
    vocabulary: str | None = None
    first_index: int = 1
    drop_columns: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    columns: int | None = None

    def checked(self) -> "Choices":
        choose("kind of values", self.values, ("auto", "binary", "counts", "numbers", "categories"))
        if self.values in ("numbers", "categories") and self.binarize not in (None, "none"):
            raise UsageError(
                f'`binarize` makes binary values, which `values="{self.values}"` does not want; leave one out.'
            )
        if self.stop_words is not None:
            choose("list of stop words", self.stop_words, ("none", "english"))
        if self.binarize is not None:
            choose("binarization", self.binarize, ("none", "threshold", "stochastic"))
        for name, binarize in (("threshold", "threshold"), ("white", "stochastic")):
            value = getattr(self, name)
            if value is not None and self.binarize != binarize:
                raise UsageError(f'`{name}` needs `binarize="{binarize}"`.')
            if value is not None and not math.isfinite(value):
                raise UsageError(f"`{name}` must be a finite number, got {value}.")
        above_zero(white=self.white)
        if self.values == "counts" and self.binarize not in (None, "none"):
            raise UsageError('`values="counts"` and `binarize` do not go together.')
        count_of(1, words=self.words)
        if self.max_df is not None and not 0 < self.max_df <= 1:
            raise UsageError(f"`max_df` must be above 0 and at most 1, got {self.max_df}.")
        if self.first_index not in (0, 1):
            raise UsageError(f"`first_index` must be 0 or 1, got {self.first_index}.")
        count_of(1, columns=self.columns)
        return self

    def of_text(self) -> list[str]:
        """The names of the choices that were made and are of text alone."""
        made = {
            "words": self.words != Choices.words,
            "stop_words": self.stop_words not in (None, "none"),  # runs on other data have it written as "none"
            "max_df": self.max_df is not None,
            "vocabulary": self.vocabulary is not None,
        }
        return [name for name, said in made.items() if said]

    def read_vocabulary(self) -> tuple[str, ...] | None:
        """The words of the file `vocabulary`."""
        if self.vocabulary is None:
            return None
        try:
            words = tuple(Path(self.vocabulary).read_text(encoding="utf-8").lower().split())
        except (OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(f"Cannot read the vocabulary {self.vocabulary}: {reason}.") from error
        if not words or len(set(words)) < len(words):
            raise UsageError(f"The vocabulary {self.vocabulary} must hold words, one per line, none twice.")
        return words
