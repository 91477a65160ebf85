-- SPDX-License-Identifier: GPL-2.0
--
-- For wrk: each request submits a job, for in an hour.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"service": "post", "delay_ms": 3600000, "payload": 1234567890123456}'

function done(summary, latency)
	local bad = summary.errors.status + summary.errors.connect + summary.errors.read +
		summary.errors.write + summary.errors.timeout
	io.write(string.format("answered %d bad %d us %d p99 %d\n", summary.requests, bad,
		summary.duration, latency:percentile(99)))
end
