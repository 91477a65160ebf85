// SPDX-License-Identifier: GPL-2.0
//
// Schedules of Quartz, clustered over JDBC, each second on the second, whose job does nothing but
// note how late it is. See ./schedules; settings are those of QuartzPeer.java, and a misfire is
// what is later than an hour: all are to be fired.
//
// Reads "NR SECONDS" and prints "FIRED P50 P99", the latter in ms.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Date;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.quartz.CronScheduleBuilder;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.Trigger;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;

public class QuartzSchedules {
	static final ConcurrentLinkedQueue<Long> late = new ConcurrentLinkedQueue<>();

	public static class Note implements Job {
		@Override
		public void execute(JobExecutionContext context) {
			late.add(System.currentTimeMillis() - context.getScheduledFireTime().getTime());
		}
	}

	public static void main(String[] args) throws Exception {
		String url = "jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/"
			+ System.getenv("PGDATABASE");
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		Properties p = QuartzPeer.properties(url);

		p.setProperty("org.quartz.jobStore.misfireThreshold", "3600000");
		QuartzPeer.tables(url);
		Scheduler scheduler = new StdSchedulerFactory(p).getScheduler();
		JobDetail note = JobBuilder.newJob(Note.class).withIdentity("note")
			.storeDurably().build();
		scheduler.addJob(note, true);
		System.out.println("ready");

		String[] word = in.readLine().split(" ");
		int nr = Integer.parseInt(word[0]), seconds = Integer.parseInt(word[1]);
		long start = (System.currentTimeMillis() + 10000 + nr * 2L) / 1000 * 1000;
		Set<Trigger> triggers = new HashSet<>();
		for (int i = 0; i < nr; i++)
			triggers.add(TriggerBuilder.newTrigger().forJob(note)
				.withSchedule(CronScheduleBuilder.cronSchedule("* * * * * ?"))
				.startAt(new Date(start)).endAt(new Date(start + seconds * 1000L - 1))
				.build());
		scheduler.scheduleJobs(Map.of(note, triggers), true);
		scheduler.start();
		System.out.println("submitted");
		in.readLine();

		long[] all = late.stream().mapToLong(Long::longValue).toArray();
		Arrays.sort(all);
		System.out.println(all.length + " " + (all.length == 0 ? "0 0" :
			all[all.length / 2] + " " + all[all.length * 99 / 100]));
		System.exit(0);
	}
}
