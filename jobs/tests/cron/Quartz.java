// SPDX-License-Identifier: GPL-2.0
//
// Expressions by chance, and when they are next, as Quartz has it: a line each, of the
// expression, the second after which, and three instants, separated by tabs.
//
//   java Quartz NUMBER SEED

import java.util.Date;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TimeZone;
import org.quartz.CronExpression;

public class Quartz {
	static final String[] MONTHS = { "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG",
					 "SEP", "OCT", "NOV", "DEC" };
	static final String[] DAYS = { "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT" };
	static Random random;

	static int between(int min, int max) {
		return min + random.nextInt(max - min + 1);
	}

	static String value(int v, int min, String[] names) {
		return names != null && random.nextBoolean() ? names[v - min] : Integer.toString(v);
	}

	static String element(int min, int max, String[] names) {
		int a = between(min, max), b = between(min, max);
		int step = between(1, Math.max(1, (max - min) / 2));

		switch (random.nextInt(4)) {
		case 0:
			return value(a, min, names);
		case 1:
			return names != null && random.nextBoolean() ?
				names[a - min] + "-" + names[b - min] : a + "-" + b;
		case 2:
			return a + "-" + b + "/" + step;
		default:
			return a + "/" + step;
		}
	}

	static String field(int min, int max, String[] names) {
		StringJoiner list = new StringJoiner(",");

		switch (random.nextInt(4)) {
		case 0:
			return "*";
		case 1:
			return (random.nextBoolean() ? "*" : "") + "/" +
				between(1, Math.max(1, (max - min) / 2));
		default:
			for (int n = between(1, 3); n > 0; n--)
				list.add(element(min, max, names));
			return list.toString();
		}
	}

	static String dayOfMonth() {
		switch (random.nextInt(8)) {
		case 0:
			return "L";
		case 1:
			return "LW";
		case 2:
			return "L-" + between(1, 20);
		case 3:
			return "L-" + between(1, 20) + "W";
		case 4:
			return between(1, 28) + "W";
		default:
			return field(1, 31, null);
		}
	}

	static String dayOfWeek() {
		int day = between(1, 7);

		switch (random.nextInt(6)) {
		case 0:
			return value(day, 1, DAYS) + "L";
		case 1:
			return value(day, 1, DAYS) + "#" + between(1, 5);
		case 2:
			return "L";
		default:
			return field(1, 7, DAYS);
		}
	}

	static String year() {
		int a = between(1990, 2090);

		switch (random.nextInt(4)) {
		case 0:
			return " " + a + "-" + (a + between(0, 9));
		case 1:
			return " " + a + "/" + between(1, 10);
		default:
			return "";
		}
	}

	static String expression() {
		boolean byMonth = random.nextBoolean();

		return field(0, 59, null) + " " + field(0, 59, null) + " " + field(0, 23, null) + " " +
			(byMonth ? dayOfMonth() : "?") + " " + field(1, 12, MONTHS) + " " +
			(byMonth ? "?" : dayOfWeek()) + year();
	}

	public static void main(String[] args) throws Exception {
		long nr = Long.parseLong(args[0]);

		random = new Random(Long.parseLong(args[1]));
		while (nr-- > 0) {
			String text = expression();
			CronExpression cron = new CronExpression(text);
			long after = 315532800L + (long) (random.nextDouble() * 3.6e9);
			StringBuilder line = new StringBuilder(text + "\t" + after);
			Date at = new Date(after * 1000);

			cron.setTimeZone(TimeZone.getTimeZone("UTC"));
			for (int i = 0; i < 3; i++) {
				if (at != null)
					at = cron.getNextValidTimeAfter(at);
				line.append("\t").append(at == null ? "never" : at.getTime() / 1000);
			}
			System.out.println(line);
		}
	}
}
