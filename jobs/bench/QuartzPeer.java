// SPDX-License-Identifier: GPL-2.0
//
// Jobs of Quartz, clustered over JDBC, each of which posts to a URL. See "peers" in ./run for how
// it is called.
//
// Its best settings, as they were found by trying (2.3.2):
//   batchTriggerAcquisitionMaxCount  as many as there are threads: else each trigger takes the
//                                    lock of the cluster by itself
//   one job with many triggers       half the rows of a job for each
//   useProperties, HikariCP          no serialised objects, and the faster pool of the two
//   one node                         a second one only waits for the same lock
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.Date;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.JobExecutionException;
import org.quartz.Scheduler;
import org.quartz.Trigger;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;

public class QuartzPeer {
	static final int THREADS = 50;

	public static class Post implements Job {
		@Override
		public void execute(JobExecutionContext context) throws JobExecutionException {
			String due = context.getTrigger().getJobDataMap().getString("due");
			byte[] body = due.getBytes();

			try {
				HttpURLConnection c = (HttpURLConnection)
					new URL(System.getenv("URL")).openConnection();
				c.setRequestMethod("POST");
				c.setDoOutput(true);
				c.setFixedLengthStreamingMode(body.length);
				c.getOutputStream().write(body);
				try (InputStream in = c.getInputStream()) {
					in.readAllBytes();	// so that the connection is kept
				}
			} catch (Exception e) {
				throw new JobExecutionException(e);
			}
		}
	}

	static Properties properties(String url) {
		String[][] all = {
			{"scheduler.instanceName", "bench"},
			{"scheduler.instanceId", "AUTO"},
			{"scheduler.skipUpdateCheck", "true"},
			{"scheduler.batchTriggerAcquisitionMaxCount", "" + THREADS},
			{"threadPool.class", "org.quartz.simpl.SimpleThreadPool"},
			{"threadPool.threadCount", "" + THREADS},
			{"jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX"},
			{"jobStore.driverDelegateClass",
			 "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate"},
			{"jobStore.dataSource", "pg"},
			{"jobStore.isClustered", "true"},
			{"jobStore.acquireTriggersWithinLock", "true"},
			{"jobStore.useProperties", "true"},
			{"dataSource.pg.provider", "hikaricp"},
			{"dataSource.pg.driver", "org.postgresql.Driver"},
			{"dataSource.pg.URL", url},
			{"dataSource.pg.user", System.getenv("PGUSER")},
			{"dataSource.pg.maxConnections", "" + (THREADS + 5)},
		};
		Properties p = new Properties();

		for (String[] one : all)
			p.setProperty("org.quartz." + one[0], one[1]);
		return p;
	}

	static void tables(String url) throws Exception {
		try (InputStream in = Job.class.getResourceAsStream(
				"/org/quartz/impl/jdbcjobstore/tables_postgres.sql");
		     Connection c = DriverManager.getConnection(url, System.getenv("PGUSER"), "");
		     Statement s = c.createStatement()) {
			s.execute(new String(in.readAllBytes(), StandardCharsets.UTF_8));
		}
	}

	static Set<Trigger> page(JobDetail post, int from, int to, long firstUs, int rate) {
		Set<Trigger> triggers = new HashSet<>();
		long now = System.currentTimeMillis() * 1000;

		for (int i = from; i < to; i++) {
			long due = firstUs != 0 ? firstUs + i * 1000000L / rate : now;

			triggers.add(TriggerBuilder.newTrigger().forJob(post)
				.usingJobData("due", "" + due)
				.startAt(new Date(due / 1000)).build());
		}
		return triggers;
	}

	public static void main(String[] args) throws Exception {
		String url = "jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/"
			+ System.getenv("PGDATABASE");
		JobDetail post = JobBuilder.newJob(Post.class).withIdentity("post")
			.storeDurably().build();
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		String line;

		tables(url);
		Scheduler scheduler = new StdSchedulerFactory(properties(url)).getScheduler();
		scheduler.addJob(post, true);
		scheduler.start();
		System.out.println("ready");
		while ((line = in.readLine()) != null) {
			String[] word = line.split(" ");
			int nr = Integer.parseInt(word[0]), lead = Integer.parseInt(word[1]);
			long first = lead > 0 ? (System.currentTimeMillis() + lead) * 1000 : 0;

			for (int i = 0; i < nr; i += 1000)
				scheduler.scheduleJobs(Map.of(post, page(post, i,
					Math.min(i + 1000, nr), first, Integer.parseInt(word[2]))),
					true);
			System.out.println("submitted");
		}
		System.exit(0);
	}
}
