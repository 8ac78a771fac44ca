"""The grocer's world as plain data: orders, customers, prices and costs.

Belongs here: order lines, customers and prices as values that depend only on the seed and the time.
Does not belong here: file formats, keys and clocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random

STORES = tuple(range(1, 13))
PRODUCTS = tuple(range(101, 161))
SEGMENTS = ("household", "family", "restaurant", "office", "student")
NATIONS = ("DE", "FR", "NL", "IT", "ES", "PL", "AT", "SE")
GUESTS = range(900_001, 900_100)
"""Customer ids that are in no customers file: customers without an account."""

Window = tuple[datetime, datetime]
"""Start (inclusive) and end (exclusive)."""

_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(2026, 9, 28)
_FIRST_CUSTOMERS = 400
_NEW_CUSTOMERS_A_DAY = 2
_DAYS_IN_A_SEGMENT = 180
_HOURS_TO_A_MISHAP = 72

# Orders of an average file by UTC hour: quiet nights, a rise before lunch, a peak after work.
_RHYTHM = (3, 2, 2, 2, 2, 3, 5, 8, 10, 11, 12, 13, 12, 11, 10, 11, 13, 16, 18, 17, 13, 9, 6, 4)
# Monday to Sunday, in percent: the big shop is on Friday and Saturday.
_WEEKDAY = (90, 85, 90, 100, 130, 140, 75)

_GIVEN_NAMES = ("Ada", "Björn", "Chloé", "Dario", "Elif", "Femke", "Gaël", "Hana", "Ines", "Jörg", "Kasia", "Lív")
_FAMILY_NAMES = ("Ångström", "Bauer", "Costa", "de Vries", "Eriksson", "Fischer", "García", "Novák", "O'Neill", "Weiß")


@dataclass(frozen=True)
class OrderLine:
    """One line of an order. Money is in USD, `discount` is a share from 0 to 1, `ordered_at` is in UTC."""

    order_id: int
    line_number: int
    customer_id: int
    product_id: int
    store_id: int
    quantity: int
    unit_price_usd: Decimal
    discount: Decimal
    ordered_at: datetime


@dataclass(frozen=True)
class Customer:
    """A customer as the shop's account system exports it."""

    customer_id: int
    name: str
    email: str
    segment: str
    nation: str
    signed_up_at: datetime


def order_lines(seed: int, hour: datetime, index: int, window: Window, share: int) -> list[OrderLine]:
    """Return the lines of one order file.

    Args:
        seed: The world's seed.
        hour: The start of the file's hour.
        index: The file's number within its hour; order ids are unique per (hour, index).
        window: Start and end of its orders, within the hour.
        share: Size in percent of an ordinary file of that hour.
    """
    random = Random(f"{seed}/{hour.isoformat()}/{index}")
    usual = _RHYTHM[hour.hour] * _WEEKDAY[hour.weekday()] * share // 10_000
    orders = max(1, usual + random.randint(-(usual // 4), usual // 4))
    first_id = _hour_number(hour) * 10_000_000 + index * 100
    return [line for number in range(min(orders, 99)) for line in _one_order(random, seed, first_id + number, window)]


def corrected(seed: int, lines: list[OrderLine], hour: datetime) -> list[OrderLine]:
    """Return the corrected lines of one order among `lines`: the same row keys with other quantities and discounts."""
    random = Random(f"{seed}/{hour.isoformat()}/correction")
    order_id = random.choice(lines).order_id
    return [
        OrderLine(**{**vars(line), "quantity": line.quantity + random.randint(1, 3), "discount": Decimal("0.2")})
        for line in lines
        if line.order_id == order_id
    ]


def has_correction(seed: int, hour: datetime) -> bool:
    """Return True if an order of that hour is corrected afterwards: about once a day."""
    return Random(f"{seed}/{hour.isoformat()}/has correction").randrange(20) == 0


def has_mishap(seed: int, hour: datetime) -> bool:
    """Return True if damaged files arrive in that hour: one hour in any three days."""
    return (_hour_number(hour) - Random(f"{seed}/mishap").randrange(_HOURS_TO_A_MISHAP)) % _HOURS_TO_A_MISHAP == 0


def customers(seed: int, day: date) -> list[Customer]:
    """Return the customers known on a day: a few more than the day before, and a few with a new segment."""
    return [_customer(seed, number, day) for number in range(1, _known_customers(day) + 1)]


def unit_costs(seed: int, day: date) -> dict[int, Decimal]:
    """Return the grocer's cost of one unit of each product on a day, in USD."""
    costs = {}
    for product in PRODUCTS:
        percent = Random(f"{seed}/cost/{product}/{day.isoformat()}").randint(55, 85)
        costs[product] = (_list_price(seed, product) * percent / 100).quantize(Decimal("0.0001"))
    return costs


def _one_order(random: Random, seed: int, order_id: int, window: Window) -> Iterator[OrderLine]:
    start, end = window
    ordered_at = start + timedelta(milliseconds=random.randrange(int((end - start) / timedelta(milliseconds=1))))
    customer, store = _buyer(random, start.date()), _favourite(random, STORES)
    is_return = random.randrange(100) == 0
    for line_number in range(1, random.randint(1, 6) + 1):
        product = _favourite(random, PRODUCTS)
        quantity = random.choice((1, 1, 1, 2, 2, 3, 4, 6, 12))
        yield OrderLine(
            order_id=order_id,
            line_number=line_number,
            customer_id=customer,
            product_id=product,
            store_id=store,
            quantity=-quantity if is_return else quantity,
            unit_price_usd=_list_price(seed, product),
            discount=Decimal(random.choice(("0", "0", "0", "0", "0", "0.05", "0.1", "0.125", "0.25", "0.333"))),
            ordered_at=ordered_at,
        )


def _buyer(random: Random, day: date) -> int:
    if random.randrange(20) == 0:
        return random.choice(GUESTS)
    # The smaller of two draws: some customers order often, most rarely.
    known = _known_customers(day)
    return min(random.randint(1, known), random.randint(1, known))


def _favourite(random: Random, among: tuple[int, ...]) -> int:
    return among[min(random.randrange(len(among)), random.randrange(len(among)))]


def _list_price(seed: int, product: int) -> Decimal:
    random = Random(f"{seed}/price/{product}")
    if product % 7 == 0:  # sold by weight, priced to a hundredth of a cent
        return Decimal(random.randint(4_000, 300_000)).scaleb(-4)
    return Decimal(random.randint(40, 3_000)).scaleb(-2)


def _known_customers(day: date) -> int:
    return _FIRST_CUSTOMERS + _NEW_CUSTOMERS_A_DAY * max(0, (day - _FIRST_DAY).days)


def _customer(seed: int, number: int, day: date) -> Customer:
    random = Random(f"{seed}/customer/{number}")
    given, family = random.choice(_GIVEN_NAMES), random.choice(_FAMILY_NAMES)
    joined = _FIRST_DAY + timedelta(days=max(-1, (number - _FIRST_CUSTOMERS - 1) // _NEW_CUSTOMERS_A_DAY))
    joined_at = datetime(joined.year, joined.month, joined.day, tzinfo=UTC)
    signed_up_at = joined_at + timedelta(seconds=random.randrange(86_400))
    if number <= _FIRST_CUSTOMERS:
        signed_up_at -= timedelta(days=random.randrange(900))
    nation = random.choice(NATIONS)
    # Each customer may change segment once per period, on a different day for each customer.
    era = (day.toordinal() + random.randrange(_DAYS_IN_A_SEGMENT)) // _DAYS_IN_A_SEGMENT
    return Customer(
        customer_id=number,
        name=f"{given} {family}",
        email=f"customer{number}@example.com",
        segment=Random(f"{seed}/segment/{number}/{era}").choice(SEGMENTS),
        nation=nation,
        signed_up_at=signed_up_at,
    )


def _hour_number(hour: datetime) -> int:
    return int((hour - _EPOCH) / timedelta(hours=1))
