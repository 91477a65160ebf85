// SPDX-License-Identifier: GPL-2.0
//
// Jobs of pg-boss, each of which is posted to a URL. See "peers" in ./run for how it is called.
//
// Its best settings, as they were found by trying (10.4.2, one process):
//   batchSize               a worker fetches once each polling interval: its rate is this over
//                           0.5 s at most, and all of a batch is completed by one statement
//   workers                 two, so that one fetches while the batch of the other is posted
//   pollingIntervalSeconds  0.5, the least there is
//   priority                false, which spares a sort
//   supervise, schedule     no maintenance and no cron while it is measured
"use strict";

const PgBoss = require("pg-boss");
const { main, post, limited } = require("./peer.js");

const BATCH = 2000, WORKERS = 2, CONCURRENCY = 50;

main(async (submit) => {
	const boss = new PgBoss({
		host: process.env.PGHOST, port: process.env.PGPORT, user: process.env.PGUSER,
		database: process.env.PGDATABASE, max: 10, supervise: false, schedule: false,
	});

	boss.on("error", console.error);
	await boss.start();
	await boss.createQueue("post");
	for (let i = 0; i < WORKERS; i++)
		await boss.work("post", {
			batchSize: BATCH, pollingIntervalSeconds: 0.5, priority: false,
		}, (jobs) => limited(jobs, CONCURRENCY, (job) => post(job.data.due)));

	await submit((dues) => boss.insert(dues.map((due) => ({
		name: "post", data: { due }, startAfter: new Date(Math.floor(due / 1000)),
	}))));
});
