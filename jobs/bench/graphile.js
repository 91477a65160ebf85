// SPDX-License-Identifier: GPL-2.0
//
// Jobs of graphile-worker, each of which posts to a URL. See "peers" in ./run for how it is called.
//
// Its best settings, as they were found by trying (0.17.3, one process):
//   localQueue             fetches in batches: a third of the database's CPU, twice the rate
//   completeJobBatchDelay  0: completes in batches what ended in the same turn of the loop; more
//                          makes the run longer and nothing cheaper
//   concurrentJobs         more gives nothing: this process is busy
//   pollInterval           100 ms, as the bars have it: what was submitted for later is found by
//                          polling alone
"use strict";

const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");
const { main, post } = require("./peer.js");

const CONCURRENCY = 50;

main(async (submit) => {
	const pool = new Pool({ max: 12 });
	pool.on("error", console.error);
	pool.on("connect", (client) => client.on("error", console.error));
	const preset = {
		worker: {
			concurrentJobs: CONCURRENCY,
			maxPoolSize: 12,
			pollInterval: 100,
			preparedStatements: true,
			localQueue: { size: 500 },
			completeJobBatchDelay: 0,
		},
	};
	const logger = new Logger(() => (level, message) => {
		if (level === "error")
			console.error(message);
	});
	await run({
		preset, pgPool: pool, logger, noHandleSignals: true,
		taskList: { post: (payload) => post(payload.due) },
	});
	const utils = await makeWorkerUtils({ preset, pgPool: pool, logger });

	await submit((dues) => utils.addJobs(dues.map((due) => ({
		identifier: "post", payload: { due }, runAt: new Date(Math.floor(due / 1000)),
	}))));
});
