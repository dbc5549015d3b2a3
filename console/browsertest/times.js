// Measures what the server takes for each page, in ms: KINDRED_URL, and EMAIL and PASSWORD of a
// member, say where. node times.js [requests of each page]

const url = process.env.KINDRED_URL, times = Number(process.argv[2] ?? 30);
const form = (fields) => ({ method: "POST", redirect: "manual", body: new URLSearchParams(fields) });
const signedIn = await fetch(`${url}/console/sign-in`, form({ email: process.env.EMAIL, password: process.env.PASSWORD }));
const cookie = signedIn.headers.getSetCookie()[0].split(";")[0];
const look = async (path) => {
  const begun = performance.now(), answer = await fetch(`${url}/console/${path}`, { headers: { cookie } }), text = await answer.text();
  return { took: performance.now() - begun, text, status: answer.status };
};
const first = (text, pattern) => text.match(pattern)?.[1];
const users = (await look("users")).text, clusters = (await look("clusters")).text, hooks = (await look("webhooks")).text;
const pages = ["", "users", "users?filter=traits.age+%3E+30", "traits?path=age", "segments", "clusters", "campaigns", "webhooks", "developers", "requests", "history", "history/3", "settings", "account", "first-steps"];
for (const [text, pattern] of [[users, /console\/(users\/usr_\w+)/], [clusters, /console\/(clusters\/clu_\w+)/], [hooks, /console\/(webhooks\/whk_\w+)/]]) pages.push(first(text, pattern));
for (const at of pages.filter((page) => page !== undefined)) {
  const all = [];
  let last;
  for (let i = 0; i < times; i++) all.push((last = await look(at)).took);
  all.sort((a, b) => a - b);
  const of = (share) => all[Math.min(all.length - 1, Math.floor(share * all.length))].toFixed(0).padStart(6);
  console.log(`${at.replace(/_\w+/, "_…").padEnd(34)} ${last.status} p50 ${of(.5)} p99 ${of(.99)} least ${of(0)}  ${(last.text.length / 1024).toFixed(0)} KiB, ${first(last.text, /<summary>The calls behind this page \((\d+)\)/)} calls`);
}
