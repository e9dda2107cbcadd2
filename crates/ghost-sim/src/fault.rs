//! Faults on demand: rules that make chosen requests fail, wait, break off or act oddly.
//!
//! A rule is read from JSON, `{"method": "POST", "route": "/v2/volumes", "after": 2, "times": 1,
//! "effect": {"status": 503}}`. It skips its first `after` matches, applies to the next `times`
//! (without it: to all), and is then spent. Every rule counts every match. Of several that apply
//! to one request the delays add up, and of other effects the first rule's counts.
//! The principal type is [`Faults`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All rules, with what is left of each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Faults(Vec<FaultRule>);

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The method, or `*`.
    #[serde(default = "anything")]
    pub method: String,
    /// The route's template such as `/v2/volumes/{volume_id}`, or `*`.
    #[serde(default = "anything")]
    pub route: String,
    /// How many more matches are spared.
    #[serde(default)]
    pub after: u64,
    /// How many more times it applies; without it for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// What it does.
    pub effect: FaultEffect,
}

/// What a rule does to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "EffectForm", into = "EffectForm")]
pub enum FaultEffect {
    /// The request is answered with this status and not acted on.
    Status {
        /// The status.
        status: u16,
        /// The seconds of a `Retry-After` header.
        retry_after_s: Option<u64>,
    },
    /// The request is acted on at once and answered this much later.
    Delay(Duration),
    /// The connection is closed without an answer.
    Drop(DropMoment),
    /// The action that the request starts goes wrong.
    Action(ActionFault),
    /// The request is acted on, and its answer's body is no JSON.
    Garbage,
    /// The request is acted on, and in its answer what is at these JSON pointers is replaced, as a
    /// cloud would have it that is itself mistaken.
    Replace(BTreeMap<String, Value>),
}

/// When a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropMoment {
    /// Before the request is acted on.
    Before,
    /// After the request was acted on.
    After,
}

/// How an action goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionFault {
    /// It never ends.
    Stick,
    /// It ends as errored, and the volume is as it was.
    Fail,
}

/// What the rules together say about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How much later the answer goes out.
    pub delay: Duration,
    /// What else happens.
    pub effect: Option<FaultEffect>,
}

impl Faults {
    /// Reads rules from JSON and checks every method and route against those that exist.
    pub fn parse(json: &[u8], routes: &[&str]) -> Result<Self, String> {
        let faults: Self = serde_json::from_slice(json)
            .map_err(|error| format!("not a list of fault rules: {error}"))?;
        for (position, rule) in faults.0.iter().enumerate() {
            let known = ["*", "GET", "POST", "PUT", "DELETE"];
            if !known.contains(&rule.method.as_str()) {
                return Err(format!(
                    "fault rule {position}: method {:?} is none of {}",
                    rule.method,
                    known.join(", ")
                ));
            }
            if rule.route != "*" && !routes.contains(&rule.route.as_str()) {
                return Err(format!(
                    "fault rule {position}: there is no route {:?}; the routes are {}",
                    rule.route,
                    routes.join(" ")
                ));
            }
        }
        Ok(faults)
    }

    /// Counts one request and says what happens to it.
    pub fn judge(&mut self, method: &str, route: &str) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in &mut self.0 {
            if !rule.matches(method, route) || !rule.count() {
                continue;
            }
            match &rule.effect {
                FaultEffect::Delay(delay) => verdict.delay = verdict.delay.saturating_add(*delay),
                effect => verdict.effect = verdict.effect.or_else(|| Some(effect.clone())),
            }
        }
        verdict
    }
}

impl FaultRule {
    fn matches(&self, method: &str, route: &str) -> bool {
        let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        fits(&self.method, method) && fits(&self.route, route)
    }

    /// Counts one match; whether the rule applies to it.
    fn count(&mut self) -> bool {
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        match &mut self.times {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// An effect as it is written: exactly one of the keys, and `retry_after_s` only with `status`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EffectForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<DropMoment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<ActionFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<BodyForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replace: Option<BTreeMap<String, Value>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BodyForm {
    Garbage,
}

impl TryFrom<EffectForm> for FaultEffect {
    type Error = String;

    fn try_from(form: EffectForm) -> Result<Self, String> {
        let retry_after_s = form.retry_after_s;
        let effects = [
            form.status.map(|status| Self::Status { status, retry_after_s }),
            form.delay_ms.map(|delay| Self::Delay(Duration::from_millis(delay))),
            form.drop.map(Self::Drop),
            form.action.map(Self::Action),
            form.body.map(|BodyForm::Garbage| Self::Garbage),
            form.replace.map(Self::Replace),
        ];
        let mut effects = effects.into_iter().flatten();
        let (Some(effect), None) = (effects.next(), effects.next()) else {
            return Err(
                "an effect has exactly one of status, delay_ms, drop, action, body, replace"
                    .to_owned(),
            );
        };
        match &effect {
            Self::Status { status, .. } if !(400..=599).contains(status) => {
                Err(format!("status {status} is no error: it must be from 400 to 599"))
            }
            Self::Status { .. } => Ok(effect),
            _ if retry_after_s.is_some() => Err("retry_after_s goes with status only".to_owned()),
            _ => Ok(effect),
        }
    }
}

impl From<FaultEffect> for EffectForm {
    fn from(effect: FaultEffect) -> Self {
        let none = Self::default();
        match effect {
            FaultEffect::Status { status, retry_after_s } => {
                Self { status: Some(status), retry_after_s, ..none }
            }
            FaultEffect::Delay(delay) => Self {
                delay_ms: Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
                ..none
            },
            FaultEffect::Drop(moment) => Self { drop: Some(moment), ..none },
            FaultEffect::Action(fault) => Self { action: Some(fault), ..none },
            FaultEffect::Garbage => Self { body: Some(BodyForm::Garbage), ..none },
            FaultEffect::Replace(values) => Self { replace: Some(values), ..none },
        }
    }
}

fn anything() -> String {
    "*".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Faults, String> {
        Faults::parse(json.as_bytes(), &["/v2/volumes", "/v2/account"])
    }

    #[test]
    fn a_rule_skips_then_applies_then_is_spent() {
        let mut faults = parse(
            r#"[{"method":"POST","route":"/v2/volumes","after":2,"times":1,"effect":{"status":503}}]"#,
        )
        .expect("rules");
        let effects: Vec<bool> =
            (0..5).map(|_| faults.judge("POST", "/v2/volumes").effect.is_some()).collect();
        assert_eq!(effects, [false, false, true, false, false]);
        assert_eq!(faults.judge("GET", "/v2/volumes"), Verdict::default());
    }

    #[test]
    fn delays_add_up_and_the_first_other_effect_counts() {
        let mut faults = parse(
            r#"[{"effect":{"delay_ms":5}},{"effect":{"drop":"after"}},{"effect":{"delay_ms":7}},
                {"effect":{"body":"garbage"}}]"#,
        )
        .expect("rules");
        let verdict = faults.judge("GET", "/v2/account");
        assert_eq!(verdict.delay, Duration::from_millis(12));
        assert_eq!(verdict.effect, Some(FaultEffect::Drop(DropMoment::After)));
    }

    #[test]
    fn what_is_left_reads_back_as_the_same_rules() {
        let json = r#"[{"method":"GET","route":"*","after":1,"times":3,"effect":{"status":429,"retry_after_s":2}},
            {"effect":{"action":"stick"}},{"effect":{"action":"fail"}},{"effect":{"drop":"before"}},
            {"effect":{"delay_ms":9}},{"effect":{"body":"garbage"}},
            {"effect":{"replace":{"/volume/droplet_ids":[1,2]}}}]"#;
        let written = serde_json::to_value(parse(json).expect("rules")).expect("JSON");
        let again = parse(&written.to_string()).expect("rules");
        assert_eq!(serde_json::to_value(again).expect("JSON"), written);
        assert_eq!(written[0]["effect"], serde_json::json!({"status": 429, "retry_after_s": 2}));
    }

    #[test]
    fn rules_that_could_never_apply_are_refused() {
        for (json, reason) in [
            ("{}", "list"),
            (r#"[{"effect":{}}]"#, "exactly one"),
            (r#"[{"effect":{"status":500,"drop":"before"}}]"#, "exactly one"),
            (r#"[{"effect":{"status":200}}]"#, "200"),
            (r#"[{"effect":{"drop":"sometimes"}}]"#, "sometimes"),
            (r#"[{"effect":{"delay_ms":1,"retry_after_s":1}}]"#, "retry_after_s"),
            (r#"[{"method":"get","effect":{"status":500}}]"#, "\"get\""),
            (r#"[{"route":"/v2/volume","effect":{"status":500}}]"#, "/v2/volume"),
            (r#"[{"rout":"*","effect":{"status":500}}]"#, "rout"),
        ] {
            let error = parse(json).expect_err(json);
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
