// What consumers that are written in JavaScript make of a junit.xml, as JSON: the parsers are theirs, the picks those
// of their sources. `node read.js FILE`, with node_modules beside it.

import fs from 'node:fs'
import { parseStringPromise } from 'xml2js'
import xmljs from 'xml-js'
import { convertJUnitToCTRFReport } from 'junit-to-ctrf'

const file = process.argv[2]
const text = fs.readFileSync(file, 'utf8')
const shown = (name, status, headline, details, more) =>
  ({ name, status, headline: headline ?? '', details: details ?? '', retries: 0, place: '', ...more })

// dorny/test-reporter, java-junit: cases of a suite are grouped by classname; an error is a failure; the message has
// the type before it; file, line and properties are not read.
async function dorny() {
  const report = await parseStringPromise(text)
  return report.testsuites.testsuite.flatMap((suite) =>
    suite.testcase.map((tc) => {
      const group = tc.$.classname === suite.$.name ? '' : tc.$.classname
      const name = group ? `${group} ► ${tc.$.name.trim()}` : tc.$.name.trim()
      const failed = (tc.failure ?? tc.error)?.[0]
      if (failed) {
        const message = failed.$.type ? `${failed.$.type}: ${failed.$.message}` : failed.$.message
        return shown(`${suite.$.name} ► ${name}`, 'failed', message, failed._)
      }
      return shown(name, tc.skipped ? 'skipped' : 'passed')
    })
  )
}

// mikepenz/action-junit-report: an annotation on file and line of the case; the message attribute, else two lines of the
// text; flakyFailure counts as a retry.
function mikepenz() {
  const list = (it) => (it === undefined ? [] : Array.isArray(it) ? it : [it])
  const report = JSON.parse(xmljs.xml2json(text, { compact: true }))
  return list(report.testsuites.testsuite).flatMap((suite) =>
    list(suite.testcase).map((tc) => {
      const at = tc._attributes
      const place = `${at.file ?? suite._attributes.file ?? ''}:${at.line ?? ''}`
      const issue = [...list(tc.failure), ...list(tc.error)][0]
      const stack = (issue?._cdata || issue?._text || '').toString().trim()
      const message = (issue?._attributes?.message || stack.split('\n').slice(0, 2).join('\n') || at.name).trim()
      const retries = list(tc.flakyFailure).length
      const status = issue ? 'failed' : tc.skipped ? 'skipped' : 'passed'
      return shown(`${at.classname} ${at.name}`, status, message, stack, { place, retries })
    })
  )
}

// junit-to-ctrf, which reads for the CTRF actions.
async function ctrf() {
  const report = await convertJUnitToCTRFReport(file)
  return report.results.tests.map((it) =>
    shown(`${(Array.isArray(it.suite) ? it.suite : [it.suite]).join(' ')} ${it.name}`, it.status, it.message, it.trace, {
      place: `${it.filePath ?? ''}:${it.line ?? ''}`,
      retries: it.retries ?? 0,
      words: (it.retryAttempts ?? []).map((attempt) => `${attempt.message}\n${attempt.trace}`).join('\n'),
    })
  )
}

console.log(JSON.stringify({ dorny: await dorny(), mikepenz: mikepenz(), ctrf: await ctrf() }))
