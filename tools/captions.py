"""Sentences about the pictures that the default model knows (tools/shapes.py), and which pictures each of them fits.

A sentence says as much as it likes: "something striped", "2 stars, yellow", "find a spotted purple disc". What it says is four lists of
numbers in [0, 1], one for each colour, shape, pattern and count: how well a picture with it fits. The product of four of them is how well
the sentence fits a picture.

The forms that is_test asks for are never used in training, and neither are their words "whose", "painted", "decorated", "wanted",
"poster" ...
"""
from shapes import COLOUR_NAMES, COUNTS, PATTERNS, SHAPES

COLOUR_WORDS = {
    "red": ["red", "crimson", "scarlet"], "orange": ["orange", "tangerine"], "yellow": ["yellow", "golden", "lemon yellow"],
    "green": ["green", "emerald"], "cyan": ["cyan", "turquoise", "teal", "aqua"], "blue": ["blue", "navy blue", "cobalt"],
    "purple": ["purple", "violet", "lilac"], "pink": ["pink", "rosy", "magenta"], "brown": ["brown", "chestnut", "chocolate brown"],
    "white": ["white", "snow white"], "black": ["black", "jet black"],
}
SHAPE_WORDS = {  # one, many
    "circle": [("circle", "circles"), ("disc", "discs"), ("disk", "disks")], "square": [("square", "squares"), ("box", "boxes")],
    "triangle": [("triangle", "triangles")], "star": [("star", "stars")], "heart": [("heart", "hearts"), ("love heart", "love hearts")],
    "ring": [("ring", "rings"), ("donut", "donuts"), ("hoop", "hoops")],
    "cross": [("cross", "crosses"), ("plus sign", "plus signs"), ("plus", "pluses")], "hexagon": [("hexagon", "hexagons")],
    "rhombus": [("rhombus", "rhombuses"), ("diamond", "diamonds"), ("lozenge", "lozenges")],
    "crescent": [("crescent", "crescents"), ("moon", "moons"), ("crescent moon", "crescent moons")],
    "arrow": [("arrow", "arrows"), ("pointer", "pointers")],
    "half circle": [("half circle", "half circles"), ("semicircle", "semicircles"), ("half disc", "half discs")],
}
ANY_SHAPE = [("thing", "things"), ("shape", "shapes"), ("object", "objects"), ("figure", "figures"), ("form", "forms"), ("item", "items")]
PATTERN_BEFORE = {
    "solid": ["solid", "plain", "unpatterned", "single coloured"], "striped": ["striped", "stripy", "stripey", "banded"],
    "dotted": ["dotted", "spotted", "polka dot", "dotty", "spotty"], "checked": ["checked", "chequered", "checkered", "checkerboard"],
}
PATTERN_BEHIND = {
    "solid": ["without a pattern", "of one colour", "with no pattern"], "striped": ["with stripes", "with bands", "that has stripes"],
    "dotted": ["with dots", "with spots", "with polka dots", "covered in dots"],
    "checked": ["with checks", "with a checkerboard pattern", "with a checked pattern"],
}
MANY = [0, 1, 1, 1]
# Words before a thing: how well they fit one, two, three and four, and whether the thing is one.
COUNT_WORDS = [
    ([1, 0, 0, 0], True, ["one", "1", "a single", "exactly one", "just one", "only one", "a lone"]),
    ([0, 1, 0, 0], False, ["two", "2", "a pair of", "exactly two", "a couple of"]),
    ([0, 0, 1, 0], False, ["three", "3", "exactly three", "a trio of"]),
    ([0, 0, 0, 1], False, ["four", "4", "exactly four"]),
]
LOOSE_COUNT_WORDS = [
    ([1, 0.5, 0.5, 0.5], True, ["a", "a", "a", "the", "this", "my"]), ([1, 1, 1, 1], True, ["", "", "any"]),
    ([0.3, 1, 1, 1], False, ["", "", "the", "these"]),
    (MANY, False, ["some", "several", "many", "multiple", "a group of", "more than one"]), ([0, 1, 1, 0], False, ["two or three"]),
    ([0, 0, 1, 1], False, ["three or four", "more than two", "at least three"]), ([1, 1, 0, 0], False, ["one or two"]),
]
ANY = [1, 1, 1, 1]
FRAMES = """{}|{}|{}|{}|{}|{}|a picture of {}|an image of {}|a photo of {}|this is a photo of {}|this is {}|a drawing of {}|
{} on a background|show me {}|find {}|find me {}|search for {}|i want to see {}|i am looking for {}|pictures with {}|
there is {}|here are {}|you can see {}|the picture shows {}|it shows {}|where is {}|please find {}|can you show me {}|
all pictures of {}|an icon of {}|the drawing contains {}|{} please|a sketch of {}|a bright photo of {}|
a small picture of {} here|an illustration showing {}|which pictures have {}""".replace("\n", "").split("|")
TEST_FRAMES = """do we own any photographs with {} in them|wanted: {}|a poster on which somebody put {}|what he needs is {}, thanks|
my sister sent us {} yesterday|could that be {}|looks like {} to me""".replace("\n", "").split("|")
FILLERS = """about above again all also always and another are around at away back bad because been before best better big but by can card
cat centre clean clear close cold come cool corner day deep did dog down each early easy even every far fast few fine first flat found free
from front full game gave get give glass go good got great had hand hard have her high him his home hot house how idea in inside into is it
just keep kind know large last late left less let light like line little long lot low made main make man map may me mean middle more
most move much name near never new next nice night no not note now of off old on once open or other our out over page paper part people
place play point poor pretty quick quite read real really right room said same say school seen set she short side simple sit small so
soft sort still stop strong such sure table take tall tell than that their them then they thin think time to today too top tree try turn
under until up upon use used very wall want warm was water way well went were what when where who why wide will wish with
wood word work world would write year yes yet you young your cartoon clipart vector digital logo symbol sign simple shiny matte bold
colourful cute tiny huge giant medium tilted rotated centred blurry noisy sharp""".split()


class Saying:
    """What a sentence says of the colour, the shape, the pattern and the count; see above."""

    def __init__(self):
        self.fits = [[1] * len(COLOUR_NAMES), [1] * len(SHAPES), [1] * len(PATTERNS), list(ANY)]

    def only(self, what, *which):
        self.fits[what] = [int(i in which) for i in range(len(self.fits[what]))]


def pick_colour(rnd, saying, colour):
    saying.only(0, colour)
    word = rnd.choice(COLOUR_WORDS[COLOUR_NAMES[colour]]) if rnd.random() < 0.4 else COLOUR_NAMES[colour]
    if rnd.random() > 0.05:
        return word
    other = rnd.randrange(len(COLOUR_NAMES))
    saying.only(0, colour, other)
    return " or ".join(rnd.sample([word, COLOUR_NAMES[other]], 2))


def pick_shape(rnd, saying, shape, is_one):
    if shape is None:
        return rnd.choice(ANY_SHAPE)[not is_one]
    saying.only(1, shape)
    words = SHAPE_WORDS[SHAPES[shape]]
    return (rnd.choice(words) if rnd.random() < 0.4 else words[0])[not is_one]


def count_words(rnd, saying, count, is_said):
    fits, is_one, words = COUNT_WORDS[count] if is_said else rnd.choice([row for row in LOOSE_COUNT_WORDS if row[0][count] > 0])
    saying.fits[3] = list(fits)
    return rnd.choice(words), is_one


def with_article(words):
    """a red heart, an orange star"""
    text = " ".join(word for word in words if word)
    return "an " + text[2:] if text.startswith("a ") and text[2:3] in "aeiou" else text


def thing(rnd, saying, colour, shape, pattern, count, is_test):
    """A sentence's middle. colour, shape, pattern: None where it does not say; count: None the same, or (count, is it said?)."""
    number, is_one = count_words(rnd, saying, *count)
    noun = pick_shape(rnd, saying, shape, is_one)
    tint = pick_colour(rnd, saying, colour) if colour is not None else ""
    before = behind = ""
    if pattern is not None:
        saying.only(2, pattern)
        before, behind = (rnd.choice(words[PATTERNS[pattern]]) for words in (PATTERN_BEFORE, PATTERN_BEHIND))
        if rnd.random() < 0.5:
            before = PATTERNS[pattern]
    are = "is" if is_one else "are"
    both = [word for word in rnd.sample([tint, before], 2) if word]
    if is_test:
        forms = [[number, noun, ", painted", tint, behind] if tint else [number, noun, ", decorated", behind],
                 [number, noun, "whose look", are, " plus ".join(both)] if both else [number, noun],
                 [noun, ":", number, ", and", are, " as well as ".join(both)] if both else [noun, ":", number]]
        return with_article(rnd.choice(forms))
    forms = [*[[number, *both, noun]] * 3, *[[number, tint, noun, behind]] * 2,
             [number, noun, "that" if rnd.random() < 0.5 else "which", are, " and ".join(both)] if both else [number, noun],
             [number, before, noun, "in " + tint if tint else ""], [number, noun, "," if both else "", " , ".join(both)],
             ["the", noun, are, " and ".join(both)] if both and not count[1] else [number, tint, noun, behind]]
    if count[1] or saying.fits[3] == ANY:
        forms.append(rnd.sample([*both, noun, number], len(both) + 2))
    if shape is None and both and not count[1]:
        saying.fits[3] = list(ANY)
        some = rnd.choice(["something", "anything", "things", "something"])
        forms = [[some, *both], [some, *both], [some, " and ".join(both)], [some, tint, behind], both,
                 [some, "in " + tint if tint else "", behind]]
    return with_article(rnd.choice(forms))


def sentence(rnd, colour, shape, pattern, count, is_test=False, says=None):
    """A sentence that fits such pictures (indices; count from 0), and what it says. says: which of colour, shape, pattern and count it
    speaks of; None: as it comes."""
    saying = Saying()
    if says is None:
        says = rnd.choices([(1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 0, 1), (1, 1, 1, 1), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 1),
                            (0, 1, 1, 0), (1, 0, 1, 0), (0, 0, 0, 1), (0, 1, 1, 1), (1, 0, 0, 1), (1, 0, 1, 1), (0, 0, 1, 1)],
                           [5, 5, 6, 8, 2, 2, 2, 3, 3, 3, 1, 3, 2, 2, 1])[0]
    text = thing(rnd, saying, colour if says[0] else None, shape if says[1] else None, pattern if says[2] else None, (count, bool(says[3])),
                 is_test)
    return rnd.choice(TEST_FRAMES if is_test else FRAMES).format(text), saying.fits


def words_of(text):
    """As the tokenizer's normaliser leaves them: lower case, no ASCII punctuation."""
    return "".join(c if c.isalnum() or ord(c) > 127 else " " for c in text.lower()).split()
