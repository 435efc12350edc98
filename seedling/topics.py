"""What the seedling's texts are about: a grid of words, from which a number picks a request."""

from __future__ import annotations

import random
from dataclasses import dataclass

# fmt: off
HEROES = [
    "a little girl named Lily", "a boy named Tom", "a small brown dog named Max",
    "a kind cat named Mia", "a young rabbit", "an old turtle", "a shy mouse", "a brave bird",
    "a lost duck", "a hungry bear", "a baby elephant", "a clever fox", "a friendly dragon",
    "a sleepy owl", "two sisters", "two brothers", "a girl named Anna and her dog",
    "a boy named Ben and his grandmother", "a little robot", "a farmer and his cow", "a small fish",
    "a frog named Fred", "a lonely cloud", "a tired horse", "a girl named Sara", "a boy named Sam",
    "a mother and her son", "a father and his daughter", "a tiny ant", "a busy bee", "a white goat",
    "a little penguin", "a gentle giant", "a teacher named Mrs. Green", "a baker named Joe",
    "a princess named Rose", "a young king", "a sailor named Jack", "three friends",
    "a puppy and a kitten", "a squirrel named Nut", "a pig named Pink", "a hen with five chicks",
    "a curious monkey", "a little lion", "a snail named Sid", "a girl named Emma",
    "a boy named Leo", "an old man", "a wise grandfather",
]
PLACES = [
    "in the park", "in a big forest", "at the beach", "on a farm", "in a small village",
    "at school", "at home", "in the garden", "by the river", "on a hill", "in a boat",
    "in the snow", "at the zoo", "in the kitchen", "in a cave", "on an island", "in a castle",
    "at the market", "under a big tree", "in the city", "near a lake", "on a mountain", "in a tent",
    "on a train", "in the library", "in the rain", "at night", "in a toy shop", "in the attic",
    "on the moon",
]
THINGS = [
    "a red ball", "a blue kite", "a shiny stone", "a lost key", "a warm hat", "a big cake",
    "a broken toy", "a yellow flower", "an apple tree", "a small boat", "a magic pencil",
    "a little box", "a golden egg", "a green scarf", "a bike", "a drum", "a letter", "a lamp",
    "a bag of seeds", "a wooden horse", "a jar of honey", "a picture book", "a snowman",
    "a bright star", "a balloon", "a secret door", "a bowl of soup", "a nest", "a pair of shoes",
    "a rope", "a bell", "a puddle", "a basket of eggs", "a map", "a mirror", "a swing",
    "a bucket of water", "a loaf of bread", "a rainbow", "a feather", "a birthday gift",
    "a teddy bear", "a clock", "a ladder", "a pot of paint", "a shell", "a song", "a button",
    "a carrot", "a pumpkin",
]
TURNS = [
    "They learn to share.", "Someone needs help.", "It ends happily.",
    "Someone is afraid at first.", "Something gets lost and is found again.",
    "A new friend comes along.", "Someone tells the truth.",
    "Someone makes a mistake and says sorry.", "The weather changes.",
    "There is a surprise at the end.", "Someone tries again and again.",
    "Somebody is kind to a stranger.", "Someone learns to wait.",
    "It has a little talk between two of them.", "There is a small problem and a clever idea.",
    "Everybody laughs at the end.",
]
OPENINGS = [
    "Once upon a time", "One day", "One sunny morning", "There was once", "Long ago",
    "It was a cold day", "", "Once upon a time, there was", "One night", "In a small house",
]
SUBJECTS = [
    "a cat", "a dog", "a cow", "a bird", "a fish", "a bee", "a frog", "a horse", "an elephant",
    "a lion", "the sun", "the moon", "rain", "snow", "wind", "a tree", "a flower", "grass",
    "an apple", "bread", "milk", "cheese", "water", "ice", "fire", "a river", "the sea",
    "a mountain", "a house", "a door", "a chair", "a table", "a bed", "a book", "a pencil",
    "a clock", "a car", "a bus", "a train", "a boat", "a plane", "a bike", "a ball", "a kite",
    "a doll", "a hat", "a shoe", "a coat", "a hand", "an eye", "an ear", "a nose", "a teacher",
    "a doctor", "a farmer", "a baker", "a friend", "a family", "a school", "a garden", "a farm",
    "a city", "a forest", "a star", "a cloud", "a rainbow", "summer", "winter", "spring", "autumn",
    "morning", "night", "a birthday", "music", "a song", "a game", "a color", "a number", "an egg",
    "a seed", "honey", "soup", "a cake", "a spoon", "a cup", "a window", "a key", "a lamp",
    "a bridge", "a road",
]
QUESTIONS = [
    "What is {}?", "What do people do with {}?", "Where can you find {}?",
    "Tell me something about {}.", "Why do people like {}?", "What does {} look like?",
    "Can you explain {} to a child?", "Is {} important?", "What is {} good for?",
    "Describe {} in one sentence.", "How would you draw {}?", "What is special about {}?",
]
# fmt: on


@dataclass(frozen=True)
class Request:
    """What a text is asked for with.

    Attributes:
        kind: ``"story"`` or ``"answer"``.
        message: What the user says to the model.
        opening: How the answer begins, given to the model; often empty.
        max_tokens: Where a text is cut.
        subject: What it is about, in a few words.
    """

    kind: str
    message: str
    opening: str
    max_tokens: int
    subject: str


def request(number: int) -> Request:
    """The request of that number: the same on every machine."""
    pick = random.Random(number)
    if number % 8 == 7:
        question, subject = pick.choice(QUESTIONS), pick.choice(SUBJECTS)
        return Request("answer", question.format(subject), "", 80, subject)
    hero, place, thing = pick.choice(HEROES), pick.choice(PLACES), pick.choice(THINGS)
    message = (
        f"Write a very short story of about 100 words for a small child, in simple words, about "
        f"{hero} {place} and {thing}. {pick.choice(TURNS)}"
    )
    return Request("story", message, pick.choice(OPENINGS), 224, f"{hero} and {thing}")
