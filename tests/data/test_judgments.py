import numpy as np

from dive_jax.data.judgments import make_judgments, place
from dive_jax.data.triplets import compact
from dive_jax.types import Triplets

QRELS = {
    "a": {"d0": 1, "d3": 3, "d1": 0, "d2": -1},
    "b": {"d4": 1},
    "c": {"d1": 2, "d2": 1, "d4": 1},
}
ROWS = {f"d{i}": i for i in range(5)}
QUERIES = {"c": 0, "b": 1, "a": 2}
DIGESTS = np.array([7, 8, 9, 7, 8], np.uint64)


def made(digests: np.ndarray | None = DIGESTS):
    return make_judgments(
        ["a", "b", "c"],
        QRELS,
        query_rows=QUERIES,
        document_rows=ROWS,
        documents=5,
        digests=digests,
    )


def test_only_relevant_documents_with_their_gains():
    judgments = made()
    np.testing.assert_array_equal(judgments.query, [2, 1, 0])
    np.testing.assert_array_equal(judgments.document, [[0, 3, -1], [4, -1, -1], [1, 2, 4]])
    np.testing.assert_array_equal(judgments.gain, [[1, 3, 0], [1, 0, 0], [2, 1, 1]])


def test_identical_texts_share_a_number():
    text = made().text
    assert text[0] == text[3] != text[1] == text[4]
    assert len(set(made(None).text)) == 5


def test_placed_among_the_rows_that_train():
    rows = Triplets(*np.array([[2, 0], [3, 4], [1, 1]], np.int32))
    _, used = compact(rows)
    np.testing.assert_array_equal(used.query, [0, 2])
    np.testing.assert_array_equal(used.document, [1, 3, 4])
    placed = place(made(), used)
    # Query row 0 is c: d1 trains as 0, d2 does not, d4 trains as 2; query row 2 is a.
    np.testing.assert_array_equal(placed.judged, [[0, -1, 2], [-1, 1, -1]])
    text = made().text
    np.testing.assert_array_equal(placed.judged_text, [text[[1, 2, 4]], [text[0], text[3], -1]])
    np.testing.assert_array_equal(placed.text, text[[1, 3, 4]])
