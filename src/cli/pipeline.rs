//! The pipeline that `tokgate init --ci` writes: one file for each CI service, with the exit codes used right.
//! What is there is never replaced.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// A CI service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// GitHub Actions: .github/workflows/tokgate.yml
    Github,
    /// GitLab CI: .gitlab-ci.yml
    Gitlab,
    /// Jenkins: Jenkinsfile
    Jenkins,
}

const GITHUB: &str = include_str!("pipeline/github.yml");
const GITLAB: &str = include_str!("pipeline/gitlab.yml");
const JENKINS: &str = include_str!("pipeline/Jenkinsfile");
/// What stands for the suite in a pipeline.
const SUITE: &str = "SUITE.toml";

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// Where, below the folder of the project.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// What is left to do by hand.
    pub note: &'static str,
}

impl Service {
    /// Where its file may go, the usual place first, each with what is left to do.
    fn places(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Service::Github => &[(
                ".github/workflows/tokgate.yml",
                "name the labels of the machine that has the engine in `runs-on`",
            )],
            Service::Gitlab => &[
                (".gitlab-ci.yml", "name the tags of the machine that has the engine in `tags`"),
                (
                    ".gitlab/tokgate.gitlab-ci.yml",
                    "take it into .gitlab-ci.yml: include: [{ local: .gitlab/tokgate.gitlab-ci.yml }]; and name the tags of the machine that has the engine",
                ),
            ],
            Service::Jenkins => &[
                ("Jenkinsfile", "name the label of the machine that has the engine in `agent`"),
                (
                    "Jenkinsfile.tokgate",
                    "make it the script path of a job of its own, and name the label of the machine that has the engine",
                ),
            ],
        }
    }

    fn text(self) -> &'static str {
        match self {
            Service::Github => GITHUB,
            Service::Gitlab => GITLAB,
            Service::Jenkins => JENKINS,
        }
    }

    /// The file for a suite, at the first place where nothing stands (`taken` says where something does).
    ///
    /// # Errors
    /// The place that is taken, where there is no other; a suite's path that a pipeline can't hold.
    pub fn pipeline(self, suite: &Path, taken: impl Fn(&Path) -> bool) -> Result<Pipeline, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let name = suite.to_str().filter(|name| name.chars().all(plain)).ok_or_else(|| {
            format!(
                "`{}` can't stand in a pipeline: use letters, digits, `-`, `_`, `.` and `/`",
                suite.display()
            )
        })?;
        if suite.is_absolute() {
            return Err(format!(
                "`{name}` is not inside of the project: give a path relative to it"
            ));
        }
        let name = name.strip_prefix("./").unwrap_or(name);
        let free = self.places().iter().find(|(path, _)| !taken(Path::new(path)));
        let Some((path, note)) = free else {
            let last = self.places().last().map_or("", |(path, _)| *path);
            return Err(format!("{last} is there already, and is not replaced"));
        };
        Ok(Pipeline { path: path.into(), text: self.text().replace(SUITE, name), note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_goes_where_nothing_stands() {
        let suite = Path::new("./suites/my-card.toml");
        let at = |service: Service, taken: &[&str]| {
            let taken: Vec<PathBuf> = taken.iter().map(PathBuf::from).collect();
            service.pipeline(suite, |path| taken.contains(&path.to_owned()))
        };
        let path = |it: Result<Pipeline, String>| it.unwrap().path.display().to_string();
        assert_eq!(path(at(Service::Gitlab, &[])), ".gitlab-ci.yml");
        assert_eq!(path(at(Service::Gitlab, &[".gitlab-ci.yml"])), ".gitlab/tokgate.gitlab-ci.yml");
        assert_eq!(path(at(Service::Jenkins, &["Jenkinsfile"])), "Jenkinsfile.tokgate");
        let refused = at(Service::Github, &[".github/workflows/tokgate.yml"]).unwrap_err();
        assert!(refused.contains("not replaced"), "{refused}");
        assert!(at(Service::Github, &[]).unwrap().text.contains("tokgate run suites/my-card.toml"));
    }

    #[test]
    fn a_path_that_would_break_the_script_is_refused() {
        let at = |path: &str| Service::Github.pipeline(Path::new(path), |_| false);
        assert!(at("my card.toml").unwrap_err().contains("can't stand"));
        assert!(at("a;rm.toml").is_err());
        assert!(at("/home/me/a.toml").unwrap_err().contains("relative"));
    }
}
