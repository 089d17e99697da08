//! The tokenizer: text to ids and back, by rule instead of by table.
//!
//! A token is up to three small letters with or without a blank before them, or one byte of
//! anything else. Any text survives the round trip. Nothing is learned and nothing is loaded, and
//! English comes to about three bytes a token.

use super::noise::mix;

/// Ids below are bytes.
const BYTES: u32 = 256;
/// Words of one, two and three small letters.
const WORDS: u32 = 26 + 26 * 26 + 26 * 26 * 26;
/// Ids are below.
pub(crate) const VOCABULARY: u32 = BYTES + 2 * WORDS;

/// The ids of a text.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    let bytes = text.as_bytes();
    let mut ids = Vec::with_capacity(bytes.len() / 3 + 1);
    let mut at = 0;
    while at < bytes.len() {
        let blank = usize::from(bytes[at] == b' ');
        let letters =
            bytes[at + blank..].iter().take(3).take_while(|byte| byte.is_ascii_lowercase()).count();
        if letters == 0 {
            ids.push(u32::from(bytes[at]));
            at += 1;
        } else {
            let word = &bytes[at + blank..at + blank + letters];
            ids.push(BYTES + blank as u32 * WORDS + number(word));
            at += blank + letters;
        }
    }
    ids
}

/// The text of ids; what is no UTF-8 shows as U+FFFD, ids beyond the vocabulary as nothing.
pub(crate) fn decode(ids: &[u32]) -> String {
    let mut bytes = Vec::with_capacity(ids.len() * 4);
    ids.iter().for_each(|id| spell(*id, &mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Appends the bytes of one token.
pub(crate) fn spell(id: u32, bytes: &mut Vec<u8>) {
    if id >= VOCABULARY {
        return;
    }
    let Some(mut word) = id.checked_sub(BYTES) else {
        bytes.push(id as u8);
        return;
    };
    if word >= WORDS {
        bytes.push(b' ');
        word -= WORDS;
    }
    let letters = match word {
        0..26 => 1,
        26..702 => 2,
        _ => 3,
    };
    let mut rest = word - [0, 0, 26, 702][letters];
    let start = bytes.len();
    for _ in 0..letters {
        bytes.push(b'a' + (rest % 26) as u8);
        rest /= 26;
    }
    bytes[start..].reverse();
}

/// The token at a place of an answer: a word of three letters, the same for the same prompt.
pub(crate) fn answer(prompt: u64, place: u64) -> u32 {
    let word = mix(prompt, place) % u64::from(26u32.pow(3));
    BYTES + WORDS + 702 + word as u32
}

fn number(word: &[u8]) -> u32 {
    let value = word.iter().fold(0, |value, byte| value * 26 + u32::from(byte - b'a'));
    [0, 0, 26, 702][word.len()] + value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_cut_in_threes() {
        let ids = encode("The quick fox");
        let pieces: Vec<String> = ids.iter().map(|id| decode(&[*id])).collect();
        assert_eq!(pieces.concat(), "The quick fox");
        assert_eq!(pieces, ["T", "he", " qui", "ck", " fox"]);
    }

    #[test]
    fn the_last_id_is_a_word() {
        assert_eq!(decode(&[VOCABULARY - 1]), " zzz");
        assert_eq!(decode(&[VOCABULARY]), "");
        assert_eq!(encode(" zzz"), [VOCABULARY - 1]);
    }

    proptest! {
        #[test]
        fn every_text_survives_the_round_trip(text in "\\PC*") {
            prop_assert_eq!(decode(&encode(&text)), text);
        }

        #[test]
        fn every_answer_is_a_word_that_is_one_token(prompt: u64, place: u64) {
            let id = answer(prompt, place);
            prop_assert_eq!(encode(&decode(&[id])), vec![id]);
        }
    }
}
