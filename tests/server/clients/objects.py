"""Objects that people ask a model for, with schemas as pydantic writes them: no key is forbidden."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str
    age: int
    email: str | None = None


class Recipe(BaseModel):
    title: str
    ingredients: list[str]
    minutes: int = Field(ge=1)


class Event(BaseModel):
    title: str
    day: date
    attendees: list[Person]


class Mood(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    score: float


class Line(BaseModel):
    description: str
    quantity: int
    price: float


class Invoice(BaseModel):
    number: str
    lines: list[Line]
    total: float


class Book(BaseModel):
    title: str
    year: int
    tags: list[str] = []
    rating: float | None = None


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class Drawing(BaseModel):
    shape: Circle | Square


class Verdict(BaseModel):
    answer: bool
    reason: str


WISHES: dict[str, type[BaseModel]] = {
    "Ann Lee is 34 years old; write to ann@example.org.": Person,
    "How do I make pancakes?": Recipe,
    "Bob (30) and Eve (28) meet for lunch on 3 May 2027.": Event,
    "What a wonderful film! I would see it again.": Mood,
    "Invoice 17: two chairs at 40.50 and a table at 120.": Invoice,
    "Tell me about Moby-Dick.": Book,
    "Draw something round, two metres across.": Drawing,
    "Is the earth larger than the moon?": Verdict,
}
