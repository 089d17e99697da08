//! Files as they stand in a revision of a git repository.
//!
//! It asks the git that is installed, and for what its repository holds already: no network, no hook, no
//! pager, no question to whoever sits there, and an end to waiting. What the file says is others' business.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that one question to git may take: file systems over networks are slow.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked whether git has ended.
const POLL: Duration = Duration::from_millis(5);
/// No baseline is as long, in bytes.
const LARGEST: u64 = 256 << 20;
/// Variables that lead git to another repository: those of a hook, or of a script around it.
const ELSEWHERE: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
];

/// A file of a revision.
#[derive(Debug)]
pub struct Found {
    /// Hash of the commit that the revision is.
    pub commit: String,
    /// What stands in the file; what is no UTF-8 is replaced.
    pub text: String,
}

/// Why a file of a revision can't be read.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no git.
    #[error("cannot read {name}: git is not installed, or not in PATH")]
    NoGit {
        /// `REVISION:FILE`.
        name: String,
    },
    /// Git can't be started.
    #[error("cannot read {name}: git can't be started: {source}")]
    Unstarted {
        /// `REVISION:FILE`.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It does not answer.
    #[error("cannot read {name}: git has not answered within {}", seconds(*after))]
    Slow {
        /// `REVISION:FILE`.
        name: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// No repository holds the file.
    #[error("cannot read {name}: {} is in no git repository", folder.display())]
    NoRepository {
        /// `REVISION:FILE`.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The repository belongs to somebody else, and git does not trust it.
    #[error("cannot read {name}: git does not trust the repository, which belongs to another user")]
    Distrusted {
        /// `REVISION:FILE`.
        name: String,
        /// Where it is.
        folder: PathBuf,
    },
    /// The repository has no such revision.
    #[error("cannot read {name}: there is no revision `{revision}`{}", if *shallow { " in this shallow clone" } else { "" })]
    NoRevision {
        /// `REVISION:FILE`.
        name: String,
        /// The revision.
        revision: String,
        /// Whether the repository has a part of the history only.
        shallow: bool,
        /// Whether there is one by the name of `origin/REVISION`.
        remote: bool,
    },
    /// The revision has no such file.
    #[error("there is no baseline {name} ({})", short(commit))]
    Absent {
        /// `REVISION:FILE`.
        name: String,
        /// The commit that the revision is.
        commit: String,
        /// Whether the file is there in the working tree.
        here: bool,
    },
    /// What has that name is no file.
    #[error("cannot read {name}: it is no file there but a {kind}")]
    NoFile {
        /// `REVISION:FILE`.
        name: String,
        /// What it is, as git calls it.
        kind: String,
    },
    /// Git says something else.
    #[error("cannot read {name}: git says: {said}")]
    Other {
        /// `REVISION:FILE`.
        name: String,
        /// The last line of it.
        said: String,
    },
}

impl GitError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            GitError::NoGit { .. } | GitError::Unstarted { .. } => {
                "install git where the suite runs, or hold the ratio against the file that is checked out: leave `git` out".to_owned()
            }
            GitError::Slow { .. } => "see whether `git status` answers there".to_owned(),
            GitError::NoRepository { .. } => {
                "run in a clone of the repository, or leave `git` out of `against`".to_owned()
            }
            GitError::Distrusted { folder, .. } => {
                format!("git config --global --add safe.directory {}", folder.display())
            }
            GitError::NoRevision { revision, remote: true, .. } => {
                format!("write `git = \"origin/{revision}\"`, which is here")
            }
            GitError::NoRevision { revision, shallow: true, .. } => fetching(revision),
            GitError::NoRevision { revision, .. } => match revision.strip_prefix("origin/") {
                Some(branch) => format!("`git fetch origin {branch}` brings a branch of that name"),
                None => "write a branch, tag or commit that is here: `git branch --all` and `git tag` list them, `git fetch` brings others".to_owned(),
            },
            GitError::Absent { here: true, .. } => {
                "commit the file there; `on-missing` of [baseline] can let it pass until then".to_owned()
            }
            GitError::Absent { .. } => "`tokgate baseline record SUITE --runs 5` writes the file, which is then committed there; `on-missing` of [baseline] can let it pass".to_owned(),
            GitError::NoFile { .. } => "name the file of recorded runs".to_owned(),
            GitError::Other { .. } => "`git fsck` looks for what is damaged; in a partial clone `git fetch --refetch` brings what is left out".to_owned(),
        }
    }
}

/// How a shallow clone gets a revision.
fn fetching(revision: &str) -> String {
    let branch = revision.strip_prefix("origin/").unwrap_or(revision);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let commit = branch.len() >= 7 && branch.bytes().all(|byte| byte.is_ascii_hexdigit());
    if commit || !branch.chars().all(plain) || branch == "HEAD" {
        return "fetch more of the history: git fetch --unshallow".to_owned();
    }
    let here =
        if branch == revision { branch.to_owned() } else { format!("refs/remotes/{revision}") };
    format!("fetch it before the run: git fetch --depth 1 origin {branch}:{here}")
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// A commit's hash as people know it.
pub fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

/// Reads a file as it stands in a revision of the repository that holds its folder.
///
/// # Errors
/// There is no git, no repository, no such revision or no such file in it, or git can't tell.
pub fn read(file: &Path, revision: &str) -> Result<Found, GitError> {
    Asking::new(file, revision, OsStr::new("git"), LIMIT).read()
}

struct Asking<'a> {
    program: &'a OsStr,
    limit: Duration,
    revision: &'a str,
    file: &'a Path,
    /// `REVISION:FILE`, for messages.
    name: String,
    /// The nearest folder above the file that there is: another revision may have more.
    folder: PathBuf,
    /// The file from there, as git writes paths.
    path: String,
}

impl<'a> Asking<'a> {
    fn new(file: &'a Path, revision: &'a str, program: &'a OsStr, limit: Duration) -> Asking<'a> {
        let mut folder = file.parent().unwrap_or(Path::new(""));
        while !folder.as_os_str().is_empty() && !folder.is_dir() {
            folder = folder.parent().unwrap_or(Path::new(""));
        }
        let rest = file.strip_prefix(folder).unwrap_or(file);
        let parts: Vec<_> =
            rest.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        let here = folder.as_os_str().is_empty();
        Asking {
            program,
            limit,
            revision,
            file,
            name: format!("{revision}:{}", file.display()),
            folder: if here { PathBuf::from(".") } else { folder.to_owned() },
            path: format!("./{}", parts.join("/")),
        }
    }

    fn read(&self) -> Result<Found, GitError> {
        let name = || self.name.clone();
        let commit = self.commit()?;
        let object = format!("{commit}:{}", self.path);
        let kind = self.ask(&["cat-file", "-t", &object])?;
        if !kind.status.success() {
            // Of a file that is there and can't be read git has more to say.
            let listed = self.ask(&["ls-tree", "--name-only", &commit, &self.path])?;
            if listed.status.success() && listed.stdout.is_empty() {
                return Err(GitError::Absent { name: name(), commit, here: self.file.exists() });
            }
            return Err(self.other(&kind));
        }
        let kind = words(&kind.stdout);
        if kind != "blob" {
            let kind = if kind == "tree" { "folder".to_owned() } else { kind };
            return Err(GitError::NoFile { name: name(), kind });
        }
        // As it was committed: no filter of the working tree changes it.
        let found = self.ask(&["cat-file", "blob", &object])?;
        if !found.status.success() {
            return Err(self.other(&found));
        }
        Ok(Found { commit, text: String::from_utf8_lossy(&found.stdout).into_owned() })
    }

    /// The commit that the revision is.
    fn commit(&self) -> Result<String, GitError> {
        let (name, folder) = (|| self.name.clone(), || self.folder.clone());
        let inside = self.ask(&["rev-parse", "--is-shallow-repository"])?;
        if !inside.status.success() {
            let said = String::from_utf8_lossy(&inside.stderr);
            return Err(if said.contains("not a git repository") {
                GitError::NoRepository { name: name(), folder: folder() }
            } else if said.contains("dubious ownership") || said.contains("unsafe repository") {
                let folder = self.folder.canonicalize().unwrap_or_else(|_| folder());
                GitError::Distrusted { name: name(), folder: trusted(&said).unwrap_or(folder) }
            } else {
                self.other(&inside)
            });
        }
        let resolve = |revision: &str| {
            let commit = format!("{revision}^{{commit}}");
            self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
        };
        let found = resolve(self.revision)?;
        if found.status.success() {
            return Ok(words(&found.stdout));
        }
        let remote = resolve(&format!("refs/remotes/origin/{}", self.revision))?.status.success();
        let shallow = words(&inside.stdout) == "true";
        let revision = self.revision.to_owned();
        Err(GitError::NoRevision { name: name(), revision, shallow, remote })
    }

    fn other(&self, output: &Output) -> GitError {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        let said = last.trim().strip_prefix("fatal: ").unwrap_or(last.trim()).to_owned();
        GitError::Other { name: self.name.clone(), said }
    }

    /// Asks git one thing.
    fn ask(&self, arguments: &[&str]) -> Result<Output, GitError> {
        let mut command = Command::new(self.program);
        command.arg("-C").arg(&self.folder).args(["--no-pager", "--literal-pathspecs"]);
        command.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]);
        command.args(arguments);
        ELSEWHERE.iter().for_each(|name| {
            command.env_remove(name);
        });
        // Words that can be told apart, and nothing that waits for somebody or something.
        command.env("LC_ALL", "C").env("LANGUAGE", "C").env_remove("GIT_TRACE");
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ASKPASS", "true");
        command.env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes").env("GIT_OPTIONAL_LOCKS", "0");
        command.env("GIT_NO_LAZY_FETCH", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = || self.name.clone();
        let mut child = command.spawn().map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                GitError::NoGit { name: name() }
            } else {
                GitError::Unstarted { name: name(), source }
            }
        })?;
        let ended = end(&mut child, Instant::now() + self.limit);
        ended
            .map_err(|source| GitError::Unstarted { name: name(), source })?
            .ok_or_else(|| GitError::Slow { name: name(), after: self.limit })
    }
}

/// The folder that git names in the command by which it is trusted.
fn trusted(said: &str) -> Option<PathBuf> {
    let rest = said.split("safe.directory ").nth(1)?;
    let folder = rest.lines().next()?.trim().trim_matches('\'');
    (!folder.is_empty()).then(|| PathBuf::from(folder))
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What a process says until it ends; `None`, and the process killed, where it does not by then.
fn end(child: &mut Child, deadline: Instant) -> std::io::Result<Option<Output>> {
    let (stdout, stderr) = (drained(child.stdout.take()), drained(child.stderr.take()));
    let left = || deadline.saturating_duration_since(Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if left().is_zero() {
            break None;
        }
        thread::sleep(POLL);
    };
    let Some(status) = status else {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    };
    // Something that git started may hold its output open.
    let (Ok(stdout), Ok(stderr)) = (stdout.recv_timeout(left()), stderr.recv_timeout(left()))
    else {
        return Ok(None);
    };
    Ok(Some(Output { status, stdout, stderr }))
}

/// All that comes out of a pipe, once it is closed.
fn drained(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is what there is.
            let _ = pipe.take(LARGEST).read_to_end(&mut bytes);
        }
        let _ = send.send(bytes);
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shallow_clone_is_told_what_to_fetch() {
        assert!(fetching("main").ends_with("git fetch --depth 1 origin main:main"));
        let remote = "git fetch --depth 1 origin main:refs/remotes/origin/main";
        assert!(fetching("origin/main").ends_with(remote));
        for deep in ["HEAD~3", "0123abc", "v1^{}", "HEAD"] {
            assert!(fetching(deep).ends_with("git fetch --unshallow"), "{deep}");
        }
    }

    #[test]
    fn a_git_that_is_not_there_or_never_answers_is_said() {
        let file = Path::new("baselines/h200.jsonl");
        let none = OsStr::new("/nowhere/git");
        let error = Asking::new(file, "main", none, LIMIT).read().unwrap_err();
        let said = "cannot read main:baselines/h200.jsonl: git is not installed, or not in PATH";
        assert_eq!(error.to_string(), said);
        let dir = tempfile::tempdir().unwrap();
        let slow = dir.path().join("git");
        std::fs::write(&slow, "#!/bin/sh\nexec sleep 60\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
        let limit = Duration::from_millis(50);
        let error = Asking::new(file, "main", slow.as_os_str(), limit).read().unwrap_err();
        assert!(matches!(error, GitError::Slow { .. }), "{error}");
    }
}
