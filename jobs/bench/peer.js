// SPDX-License-Identifier: GPL-2.0
//
// What the peers that run in node have in common.
"use strict";

const http = require("http");
const readline = require("readline");

const agent = new http.Agent({ keepAlive: true, maxSockets: 100, noDelay: true });
const url = new URL(process.env.URL);

exports.post = (due) => new Promise((resolve, reject) => {
	const body = String(due);
	const request = http.request({
		agent, host: url.hostname, port: url.port, path: "/", method: "POST",
		headers: { "Content-Length": body.length },
	}, (response) => {
		response.resume();
		response.on("end", resolve);
	});

	request.on("error", reject);
	request.end(body);
});

// Calls fn with each of them, and with so many at a time.
exports.limited = async (all, most, fn) => {
	let next = 0;
	const turn = async () => {
		while (next < all.length)
			await fn(all[next++]);
	};

	await Promise.all(Array.from({ length: most }, turn));
};

// Tells when start() is ready to submit. Each line of stdin is how many jobs, in how many ms the
// first is due, or 0 for each when it is submitted, and how many a second.
exports.main = async (start) => {
	const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

	await start(async (add) => {
		console.log("ready");
		for (;;) {
			const { value, done } = await lines.next();
			if (done)
				process.exit(0);
			const [nr, lead, rate] = value.split(" ").map(Number);
			const first = (Date.now() + lead) * 1000;

			for (let i = 0; i < nr; i += 1000) {
				const now = Date.now() * 1000;
				await add(Array.from({ length: Math.min(1000, nr - i) }, (_, k) =>
					lead ? first + Math.floor((i + k) * 1e6 / rate) : now));
			}
			console.log("submitted");
		}
	});
};
