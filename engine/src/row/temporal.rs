//! Dates and times as plain counts: days since 1970, microseconds since midnight, microseconds since 1970 UTC.
//!
//! A count is what is stored and compared; chrono knows the calendar. The range is that of SQL, years 0000 to 9999 of
//! the proleptic Gregorian calendar, so that every stored moment has a four-digit year and a canonical ISO 8601 text
//! that parses back to itself. Leap seconds do not exist here (as in Unix time); a text with second 60 is refused.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Timelike, Utc};

const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds of one day.
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Days from 0001-01-01 (day 1 of the common era, as chrono counts) to 1970-01-01.
const DAYS_TO_1970: i32 = 719_163;

/// A calendar date without a time zone: days since 1970-01-01.
///
/// ```
/// use alluvium::row::Date;
/// assert_eq!(Date::from_days(1).map(|date| date.to_string()), Some("1970-01-02".to_owned()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i32);

impl Date {
    /// 0000-01-01.
    pub const MIN: Date = Date(-719_528);
    /// 9999-12-31.
    pub const MAX: Date = Date(2_932_896);

    /// The date `days` after 1970-01-01 (before it, if negative); `None` outside of years 0000 to 9999.
    #[must_use]
    pub fn from_days(days: i32) -> Option<Date> {
        (Date::MIN.0..=Date::MAX.0).contains(&days).then_some(Date(days))
    }

    /// The date of a year, month and day; `None` if there is no such day in years 0000 to 9999.
    #[must_use]
    pub fn from_ymd(year: i32, month: u32, day: u32) -> Option<Date> {
        Date::from_chrono(NaiveDate::from_ymd_opt(year, month, day)?)
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub fn days(self) -> i32 {
        self.0
    }

    /// From chrono's date; `None` outside of years 0000 to 9999.
    #[must_use]
    pub fn from_chrono(date: NaiveDate) -> Option<Date> {
        Date::from_days(date.num_days_from_ce() - DAYS_TO_1970)
    }

    /// As chrono's date.
    #[must_use]
    pub fn to_chrono(self) -> NaiveDate {
        NaiveDate::from_num_days_from_ce_opt(self.0 + DAYS_TO_1970).unwrap_or_default()
    }

    /// Midnight UTC of this date.
    #[must_use]
    pub fn midnight(self) -> Timestamp {
        Timestamp(i64::from(self.0) * MICROS_PER_DAY)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.to_chrono();
        write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
    }
}

/// A time of day without a time zone: microseconds since midnight, below 24 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// 23:59:59.999999.
    pub const MAX: Time = Time(MICROS_PER_DAY - 1);

    /// The time `micros` microseconds after midnight; `None` from 24 hours on.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Time> {
        (0..MICROS_PER_DAY).contains(&micros).then_some(Time(micros))
    }

    /// Microseconds since midnight.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// From chrono's time; `None` if it has a finer part than a microsecond or lies in a leap second.
    #[must_use]
    pub fn from_chrono(time: NaiveTime) -> Option<Time> {
        let nanos = i64::from(time.nanosecond());
        let micros = i64::from(time.num_seconds_from_midnight()) * MICROS_PER_SECOND + nanos / 1000;
        (nanos % 1000 == 0 && nanos < 1_000_000_000).then(|| Time::from_micros(micros))?
    }

    /// As chrono's time.
    #[must_use]
    pub fn to_chrono(self) -> NaiveTime {
        let seconds = (self.0 / MICROS_PER_SECOND) as u32;
        let nanos = (self.0 % MICROS_PER_SECOND) as u32 * 1000;
        NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos).unwrap_or_default()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND);
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        match micros {
            0 => Ok(()),
            _ if micros % 1000 == 0 => write!(f, ".{:03}", micros / 1000),
            _ => write!(f, ".{micros:06}"),
        }
    }
}

/// A moment: microseconds since 1970-01-01T00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 0000-01-01T00:00:00Z.
    pub const MIN: Timestamp = Timestamp(Date::MIN.0 as i64 * MICROS_PER_DAY);
    /// 9999-12-31T23:59:59.999999Z.
    pub const MAX: Timestamp = Timestamp((Date::MAX.0 as i64 + 1) * MICROS_PER_DAY - 1);

    /// The moment `micros` microseconds after 1970 (before it, if negative); `None` outside of years 0000 to 9999.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Timestamp> {
        (Timestamp::MIN.0..=Timestamp::MAX.0).contains(&micros).then_some(Timestamp(micros))
    }

    /// Microseconds since 1970 UTC.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// The moment of a date and time of day in UTC.
    #[must_use]
    pub fn at(date: Date, time: Time) -> Timestamp {
        Timestamp(date.midnight().0 + time.0)
    }

    /// The date, in UTC.
    #[must_use]
    pub fn date(self) -> Date {
        Date(self.0.div_euclid(MICROS_PER_DAY) as i32)
    }

    /// The time of day, in UTC.
    #[must_use]
    pub fn time(self) -> Time {
        Time(self.0.rem_euclid(MICROS_PER_DAY))
    }

    /// From chrono's moment; `None` if it has a finer part than a microsecond or lies outside of years 0000 to 9999.
    #[must_use]
    pub fn from_chrono(moment: DateTime<Utc>) -> Option<Timestamp> {
        let exact = moment.timestamp_subsec_nanos().is_multiple_of(1000)
            && moment.timestamp_subsec_nanos() < 1_000_000_000;
        exact.then(|| Timestamp::from_micros(moment.timestamp_micros()))?
    }

    /// As chrono's moment.
    #[must_use]
    pub fn to_chrono(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}T{}Z", self.date(), self.time())
    }
}

/// Takes `count` decimal digits off the front of `text`.
fn digits(text: &mut &[u8], count: usize) -> Option<u32> {
    let (taken, rest) = text.split_at_checked(count)?;
    *text = rest;
    taken
        .iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

/// Takes one byte off the front of `text` if it is one of `wanted`.
fn one_of(text: &mut &[u8], wanted: &[u8]) -> Option<u8> {
    let (&first, rest) = text.split_first()?;
    wanted.contains(&first).then(|| *text = rest)?;
    Some(first)
}

fn take_date(text: &mut &[u8]) -> Option<Date> {
    let year = digits(text, 4)?;
    one_of(text, b"-")?;
    let month = digits(text, 2)?;
    one_of(text, b"-")?;
    Date::from_ymd(year as i32, month, digits(text, 2)?)
}

/// `HH:MM[:SS[.fraction]]`; digits of the fraction beyond the sixth must be zeros, since nothing is rounded.
fn take_time(text: &mut &[u8]) -> Option<Time> {
    let hour = digits(text, 2)?;
    one_of(text, b":")?;
    let minute = digits(text, 2)?;
    let mut second = 0;
    let mut micros = 0;
    if one_of(text, b":").is_some() {
        second = digits(text, 2)?;
        if one_of(text, b".").is_some() {
            let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (fraction, rest) = text.split_at_checked(len)?;
            let (kept, beyond) = fraction.split_at(len.min(6));
            if kept.is_empty() || beyond.iter().any(|&byte| byte != b'0') {
                return None;
            }
            micros = kept.iter().fold(0, |number, byte| number * 10 + i64::from(byte - b'0'));
            micros *= 10i64.pow(6 - kept.len() as u32);
            *text = rest;
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(Time(i64::from(hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros))
}

/// What stands behind a time: nothing or `Z` for UTC, `±HH:MM` or `±HHMM` or `±HH`. In microseconds east of UTC.
fn take_zone(text: &mut &[u8]) -> Option<i64> {
    match one_of(text, b"Zz+-") {
        None | Some(b'Z' | b'z') => Some(0),
        Some(sign) => {
            let hours = digits(text, 2)?;
            let colon = one_of(text, b":").is_some();
            let minutes = if colon || !text.is_empty() { digits(text, 2)? } else { 0 };
            let east = i64::from(hours * 3600 + minutes * 60) * MICROS_PER_SECOND;
            (hours <= 23 && minutes <= 59).then_some(if sign == b'-' { -east } else { east })
        }
    }
}

/// Parses `YYYY-MM-DD`.
pub(super) fn parse_date(text: &str) -> Option<Date> {
    let mut rest = text.as_bytes();
    let date = take_date(&mut rest)?;
    rest.is_empty().then_some(date)
}

/// Parses `HH:MM[:SS[.fraction]]`.
pub(super) fn parse_time(text: &str) -> Option<Time> {
    let mut rest = text.as_bytes();
    let time = take_time(&mut rest)?;
    rest.is_empty().then_some(time)
}

/// Parses `YYYY-MM-DD[(T| )HH:MM[:SS[.fraction]][zone]]`; without a zone it is UTC, without a time midnight.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let mut rest = text.as_bytes();
    let date = take_date(&mut rest)?;
    if rest.is_empty() {
        return Some(date.midnight());
    }
    one_of(&mut rest, b"Tt ")?;
    let time = take_time(&mut rest)?;
    let east = take_zone(&mut rest)?;
    rest.is_empty().then(|| Timestamp::from_micros(Timestamp::at(date, time).0 - east))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_are_the_first_and_last_moment_of_four_digit_years() {
        assert_eq!(Date::MIN.to_string(), "0000-01-01");
        assert_eq!(Date::MAX.to_string(), "9999-12-31");
        assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00Z");
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
        assert_eq!(Date::from_days(Date::MAX.days() + 1), None);
        assert_eq!(Timestamp::from_micros(i64::MIN), None);
    }

    #[test]
    fn zones_and_fractions_are_exact() {
        let utc = parse_timestamp("2013-01-01T05:00:00Z");
        assert!(utc.is_some());
        for same in ["2013-01-01 05:00", "2013-01-01T07:00:00+02:00", "2013-01-01T00:00:00.000000000-0500"] {
            assert_eq!(parse_timestamp(same), utc, "{same}");
        }
        assert_eq!(
            parse_timestamp("2013-01-01T05:00:00.1234560Z").map(|t| t.to_string()).as_deref(),
            Some("2013-01-01T05:00:00.123456Z")
        );
        for refused in [
            "2013-01-01T05:00:00.1234567Z",
            "2013-02-29",
            "2016-12-31T23:59:60Z",
            "2013-01-01T24:00",
            "2013-1-1",
            "2013-01-01T05:00:00.Z",
            "0000-01-01T00:00:00+01:00",
        ] {
            assert_eq!(parse_timestamp(refused), None, "{refused}");
        }
    }

    proptest! {
        #[test]
        fn texts_round_trip(micros in Timestamp::MIN.micros()..=Timestamp::MAX.micros()) {
            let moment = Timestamp::from_micros(micros).unwrap();
            prop_assert_eq!(parse_timestamp(&moment.to_string()), Some(moment));
            prop_assert_eq!(parse_date(&moment.date().to_string()), Some(moment.date()));
            prop_assert_eq!(parse_time(&moment.time().to_string()), Some(moment.time()));
            prop_assert_eq!(Timestamp::at(moment.date(), moment.time()), moment);
            prop_assert_eq!(Timestamp::from_chrono(moment.to_chrono()), Some(moment));
            prop_assert_eq!(Date::from_chrono(moment.date().to_chrono()), Some(moment.date()));
            prop_assert_eq!(Time::from_chrono(moment.time().to_chrono()), Some(moment.time()));
        }

        #[test]
        fn parsers_survive_any_text(text: String) {
            let _ = (parse_date(&text), parse_time(&text), parse_timestamp(&text));
        }
    }
}
