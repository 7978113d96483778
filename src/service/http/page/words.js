// Every text of the page, in English and in Korean beside each other, and how numbers and times are written.

const TEXT = {
  skip: ["Skip to what is going on", "현재 상태로 바로 가기"],
  controls: ["Controls", "조작"],
  keys: ["Keys", "단축키"],
  headline: ["State", "상태"],
  others: ["Also", "그 밖의 상태"],
  budgets: ["Budgets", "예산"],
  breakers: ["Breakers", "서킷 브레이커"],
  processes: ["Processes connected to the store", "저장소에 연결된 프로세스"],
  no_process: ["Nobody else is connected.", "연결된 프로세스가 없다."],
  server: ["Database", "데이터베이스"],
  service: ["This service", "이 서비스"],

  // The way to the service.
  connecting: ["connecting", "연결 중"],
  live: ["live", "실시간"],
  link_store_out: ["connected, the store is out of reach", "연결됨, 저장소 연결 불가"],
  silent: ["nothing new for {age}", "{age} 동안 갱신 없음"],
  reconnecting: ["reconnecting", "다시 연결 중"],
  reconnecting_in: ["reconnecting in {left}", "{left} 뒤 다시 연결"],
  no_token: ["a token is needed", "토큰 필요"],
  stale_note: ["What follows is {age} old.", "아래 수치는 {age} 전 값이다."],

  // The headline: what it is, more about it, what to do.
  well: ["All is well", "정상"],
  well_detail: ["{rate} slots/s granted, {waiting} waiting, no breaker open", "발신 슬롯 {rate}/s, 대기 {waiting}, 열린 브레이커 없음"],
  well_quiet: ["Nothing is being sent, nothing waits, no breaker open", "발신 없음, 대기 없음, 열린 브레이커 없음"],
  first_look: ["First figures in a moment.", "곧 첫 수치가 들어온다."],
  lost: ["Connection to this service lost", "이 서비스와 연결이 끊겼다"],
  lost_detail: ["Since {clock} ({age}). What is shown is what was then.", "{clock}부터 {age}째. 화면은 그때 상태다."],
  lost_never: ["No answer from {where} yet.", "{where}에서 아직 응답이 없다."],
  lost_doing: [
    "Callers may well go on. See whether call-budget serve runs there; call-budget status asks the store without it.",
    "호출자는 계속 발신하고 있을 수 있다. 그 호스트에서 call-budget serve가 도는지 확인한다. call-budget status는 이 서비스 없이 저장소에 직접 묻는다.",
  ],
  asks: ["This service asks who is looking", "조회에 토큰이 필요하다"],
  asks_detail: ["It shows nothing without its caller token or its admin token.", "호출자 토큰이나 관리자 토큰이 있어야 상태를 보여 준다."],
  store_out: ["Store out of reach: nothing is sent", "저장소 연결 불가: 발신 중단"],
  store_out_detail: ["The last reading was at {clock} ({age} ago). {why}", "마지막 조회는 {clock}, {age} 전이다. {why}"],
  store_out_never: ["Nothing was read yet. {why}", "아직 한 번도 조회하지 못했다. {why}"],
  store_out_doing: [
    "Callers fail closed and come back by themselves. See to PostgreSQL and the way to it; nothing has to be restarted here.",
    "호출자는 발신을 중단하고 있다가 저장소가 돌아오면 스스로 재개한다. PostgreSQL과 그 경로를 확인한다. 여기서 재시작할 것은 없다.",
  ],
  paused: ["{name} is paused", "{name} 일시 중지됨"],
  paused_detail: ["{since} by {who}: {why}", "{since}, {who}: {why}"],
  paused_doing: ["Nobody gets a slot until somebody resumes it. Resuming releases no burst.", "재개할 때까지 발신 슬롯이 나가지 않는다. 재개해도 밀린 호출이 한꺼번에 나가지는 않는다."],
  open: ["Breaker {name} is open", "브레이커 {name} 열림"],
  forced_open: ["Breaker {name} is held open by hand", "브레이커 {name} 수동 차단"],
  breaker_for: ["for {age}", "{age}째"],
  breaker_in: ["in {count} of {all} processes", "프로세스 {all}개 중 {count}개"],
  open_doing: [
    "Its calls are refused and cost no slot; probes go out by themselves. See whether the vendor has trouble or the key has changed.",
    "이 브레이커 뒤의 호출은 슬롯을 쓰지 않고 거절된다. 프로브는 때가 되면 스스로 나간다. 벤더 장애인지, 키가 바뀌었는지 확인한다.",
  ],
  forced_doing: ["It stays so until whoever ordered it takes it back.", "지시한 사람이 되돌릴 때까지 유지된다."],
  pushback: ["{name} is pushed back", "{name} 푸시백 중"],
  pushback_detail: ["{left} left, by {who}: {why}", "{left} 남음, {who}: {why}"],
  pushback_doing: ["Slots go on by themselves. If it comes back: who else uses this key, and is the limit right?", "끝나면 발신 슬롯이 스스로 재개된다. 반복되면 같은 키를 쓰는 다른 호출자와 한도 설정을 확인한다."],
  fenced: ["{name} keeps a quiet moment", "{name} 펜스 중: 잠시 발신하지 않는다"],
  fenced_detail: ["{left} left: commits may have been forgotten, or the clock has stepped", "{left} 남음. 커밋이 유실됐거나 저장소 시각이 바뀌었을 수 있다"],
  fenced_doing: ["It goes on by itself. If it comes again and again: is the database failing over, or its clock being set?", "스스로 재개된다. 되풀이되면 데이터베이스 페일오버나 시계 조정을 확인한다."],
  probing: ["Breaker {name} is probing", "브레이커 {name} 프로브 중"],
  probe_due: ["Breaker {name} waits for a probe", "브레이커 {name} 프로브 대기"],
  probing_doing: ["The next good answers close it.", "프로브가 성공하면 닫힌다."],
  calendar: ["Breaker {name} is closed for maintenance", "브레이커 {name} 점검 시간"],
  calendar_doing: ["Its calendar says that nobody calls now. It goes on by itself.", "달력에 등록된 차단 시간이다. 끝나면 스스로 재개된다."],
  by_hand: ["Breaker {name} is on {state} by hand", "브레이커 {name} 수동 {state}"],
  by_hand_doing: ["It never opens while this is in force.", "이 지시가 있는 동안에는 열리지 않는다."],
  hold: ["{name} is held", "{name} 보류"],
  hold_detail: ["{left} left: {why}", "{left} 남음: {why}"],
  hold_doing: ["Its calls are refused; everybody else goes on. A changed key is let through at once.", "이 대상의 호출만 거절되고 나머지는 계속 발신한다. 키를 바꾸면 바로 풀린다."],
  stopping: ["This service is stopping", "이 서비스가 종료 중이다"],
  stopping_doing: ["Callers of it are refused; those of other services and programs go on.", "이 서비스의 호출자는 거절된다. 다른 서비스와 프로그램은 계속 발신한다."],
  off: ["The switch is off", "call_budget_enabled 꺼짐"],
  off_detail: ["No shared budget stands behind what is sent here: each process keeps a pace of its own.", "이 서비스의 발신은 공유 예산을 거치지 않는다. 프로세스마다 자체 간격만 지킨다."],
  off_doing: ["On is a decision: call_budget_enabled = true, then restart.", "켜는 것은 별도 운영 결정이다. call_budget_enabled=true로 두고 재시작한다."],
  unsafe: ["{name} is off in the database", "데이터베이스의 {name} 꺼짐"],
  unsafe_detail: [
    "A crash of the database voids the guarantee: the store may come back damaged, or as it was earlier.",
    "데이터베이스가 비정상 종료되면 한도를 보장할 수 없다. 저장소가 손상되거나 예전 상태로 돌아갈 수 있다.",
  ],
  unsafe_doing: ["Set {name} = on in postgresql.conf, and reload PostgreSQL.", "postgresql.conf에서 {name} = on으로 두고 설정을 다시 읽게 한다."],
  forgetful: ["synchronous_commit is off in the database", "데이터베이스의 synchronous_commit 꺼짐"],
  forgetful_detail: [
    "A crash of the database may forget the last slots: it keeps a quiet moment then, so the limit holds and some calls come later.",
    "데이터베이스가 비정상 종료되면 마지막 슬롯 기록이 유실될 수 있다. 그때는 펜스로 잠시 발신을 멈추므로 한도는 지켜지고 호출이 늦어진다.",
  ],
  forgetful_doing: ["No haste. Set it on, unless calls are too slow then.", "급하지 않다. 켰을 때 호출이 너무 느려지지 않는다면 켠다."],
  growing: ["Waits grow: {class} of {name}", "대기 증가: {name}의 {class}"],
  long: ["Waits are long: {class} of {name}", "긴 대기: {name}의 {class}"],
  waits_detail: ["{units} units wait, expected wait ~{wait}", "대기 {units}단위, 예상 대기 ~{wait}"],
  waits_unknown: ["{units} units wait, no slot for {wait}", "대기 {units}단위, {wait} 동안 슬롯 없음"],
  waits_doing: [
    "More is asked for than this class gets. Ask for less, move work to another hour, or give the class a floor: call-budget class set.",
    "이 등급이 받는 슬롯보다 요청이 많다. 요청을 줄이거나 다른 시간으로 옮긴다. 하한 몫을 줄 수도 있다: call-budget class set",
  ],
  nothing_sent: ["Nothing is being sent", "발신 없음"],
  nothing_sent_detail: ["The last slot was {age} ago, nothing waits.", "마지막 슬롯은 {age} 전이고, 대기도 없다."],
  nothing_sent_doing: [
    "Is that as it should be at this hour? If not: do the callers run, are they switched on, and are they among the processes below?",
    "지금 시간대에 맞는 상태인지 본다. 아니라면 호출자가 돌고 있는지, 스위치가 켜져 있는지, 아래 프로세스 목록에 있는지 확인한다.",
  ],
  more: ["and {count} more", "외 {count}건"],
  since_clock: ["since {clock}", "{clock}부터"],
  since_before: ["since before {clock}", "{clock} 이전부터"],
  nobody: ["somebody", "알 수 없음"],
  no_reason: ["no reason given", "사유 없음"],

  // A budget.
  limit: ["limit {units} per {window}", "한도 {window}당 {units}"],
  rate_of: ["slots/s now · pace {pace}", "슬롯/s · 허용 속도 {pace}"],
  settings: ["one slot each {interval}, to be used within {send}", "슬롯 간격 {interval}, 발신 창 {send}"],
  cost: ["calls cost up to {cost}", "호출 비용 최대 {cost}"],
  running: ["running", "발신 중"],
  idle: ["idle", "유휴"],
  unknown: ["not known", "알 수 없음"],
  state_paused: ["paused", "일시 중지"],
  state_pushback: ["pushed back", "푸시백"],
  state_fenced: ["fenced", "펜스"],
  fences: ["fenced {count}× so far", "펜스 누적 {count}회"],
  last_slot: ["last slot {age}", "마지막 슬롯 {age}"],
  no_slot: ["no slot yet", "아직 슬롯 없음"],
  ago: ["{age} ago", "{age} 전"],
  ahead: ["in {age}", "{age} 뒤"],
  chart: ["Slots a second by class over the last {seconds} s: {what}", "최근 {seconds}초의 등급별 초당 발신 슬롯: {what}"],
  chart_title: ["Slots a second, by class", "등급별 초당 발신 슬롯"],
  chart_at: ["{age} ago: {what}", "{age} 전: {what}"],
  chart_hole: ["{age} ago: not known", "{age} 전: 알 수 없음"],
  chart_now: ["now", "지금"],
  chart_from: ["−{seconds} s", "−{seconds}초"],
  chart_limit: ["limit {limit}/s", "한도 {limit}/s"],
  no_class: ["No class yet: call-budget class set {name} CLASS --priority 0 makes one.", "등급이 없다. call-budget class set {name} CLASS --priority 0으로 만든다."],
  no_budget: ["No budget yet: call-budget budget set NAME --limit 18 --window 1s makes one.", "예산이 없다. call-budget budget set NAME --limit 18 --window 1s로 만든다."],
  no_budget_off: ["No store is touched while the switch is off: there are no budgets to be seen.", "꺼져 있는 동안에는 저장소에 접속하지 않는다. 보여 줄 예산이 없다."],
  class: ["class", "등급"],
  now: ["now", "현재"],
  share: ["share of last minute", "최근 1분 비중"],
  floor: ["floor {floor}", "하한 {floor}"],
  no_floor: ["no floor", "하한 없음"],
  under_floor: ["under its floor", "하한 미달"],
  waiting: ["waiting", "대기"],
  waiting_title: ["{units} units wait in {lanes} lanes (a lane: one class of one process)", "레인 {lanes}개(프로세스·등급별 대기열)에서 {units}단위 대기. 대기 상한을 넘긴 호출은 발신하지 않는다"],
  wait_title: [" · expected wait ~{wait}, at its rate of the last minute", " · 예상 대기 ~{wait}(최근 1분 속도 기준)"],
  last: ["last slot", "마지막 슬롯"],
  priority: ["priority {priority}", "우선순위 {priority}"],
  pause: ["Pause", "일시 중지"],
  resume: ["Resume", "재개"],
  push_back: ["Push back", "푸시백"],
  cannot_now: ["Not possible while the store is out of reach", "저장소에 연결할 수 없어 지금은 할 수 없다"],

  // A breaker.
  closed: ["closed", "닫힘"],
  state_open: ["open", "열림"],
  state_probe_due: ["probe due", "프로브 대기"],
  state_probing: ["probing", "프로브 중"],
  state_held: ["calendar", "달력 차단"],
  state_forced_open: ["forced open", "강제 열림"],
  state_bypass: ["bypass", "우회"],
  state_observe: ["observe", "관찰"],
  all_closed: ["Closed: {names}", "닫힘: {names}"],
  none_told: ["No breaker has been open within the last hour.", "최근 1시간 동안 열린 브레이커가 없다."],
  unseen: ["Those of other processes are not shown: {why}", "다른 프로세스의 브레이커는 볼 수 없다: {why}"],
  this_service: ["this service", "이 서비스"],
  retry: ["next change in {left}", "다음 변화까지 {left}"],
  retry_now: ["next change any moment", "곧 바뀐다"],
  rung: ["rung {rung}", "대기 단계 {rung}"],
  outcomes: ["{good} good, {bad} bad, {rejected} refused", "성공 {good}, 실패 {bad}, 거절 {rejected}"],
  failure_rate: ["failure rate {rate}", "실패율 {rate}"],
  slow_rate: ["slow rate {rate}", "지연율 {rate}"],
  told: ["told {age} ago", "{age} 전 보고"],
  told_stale: ["told {age} ago: says what was", "{age} 전 보고: 지금과 다를 수 있다"],
  episode: [
    "episode for {age}, blocked {open} of it, reopened {reopened}×, {probes} probes, first cause: {cause}",
    "에피소드 {age}째, 차단 {open}, 재차단 {reopened}회, 프로브 {probes}회, 첫 원인: {cause}",
  ],
  held: ["held: {scope}, {left} left: {why}", "보류: {scope}, {left} 남음: {why}"],
  behind: ["surfaces: {names}", "surface: {names}"],

  // Server and service.
  snapshot: ["oldest snapshot", "가장 오래된 스냅샷"],
  snapshot_none: ["none held", "없음"],
  snapshot_is: ["{transactions} transactions{age}, {name}", "트랜잭션 {transactions}개{age}, {name}"],
  uptime: ["up for", "가동 시간"],
  callers: ["callers waiting here", "이 서비스의 대기 호출"],
  open_calls: ["open calls", "결과 보고 전 호출"],
  switch: ["switch", "스위치"],
  on: ["on", "켜짐"],
  off_word: ["off", "꺼짐"],
  reading: ["store read", "저장소 조회"],
  nameless: ["without a name", "이름 없음"],

  // Dialogs.
  cancel: ["Cancel", "취소"],
  close: ["Close", "닫기"],
  reason: ["Reason", "사유"],
  reason_note: ["Everybody who looks here reads it: what happened, and who you are.", "여기를 보는 모두가 읽는다. 무슨 일인지, 누구인지 적는다."],
  reason_missing: ["A reason is needed: others will ask.", "사유를 적어야 한다. 나중에 누군가 묻는다."],
  token: ["Token", "토큰"],
  admin_token: ["Admin token", "관리자 토큰"],
  token_missing: ["The admin token is needed: it is in the service's admin_token_file.", "관리자 토큰이 필요하다. 서비스의 admin_token_file에 있다."],
  token_note: ["Kept in this tab until you forget it or close it.", "이 탭에만 보관한다. 탭을 닫거나 지우면 사라진다."],
  token_kept: ["The admin token is kept in this tab.", "관리자 토큰이 이 탭에 보관돼 있다."],
  token_forgotten: ["The token is forgotten.", "토큰을 지웠다."],
  forget: ["Forget the token", "토큰 지우기"],
  look: ["Look", "조회"],
  give_token: ["Give a token", "토큰 입력"],
  asks_token: ["This service asks who is looking", "조회에 토큰이 필요하다"],
  asks_token_what: ["Its caller token or its admin token, from the files that its settings name.", "서비스 설정에 적힌 파일의 호출자 토큰이나 관리자 토큰을 넣는다."],
  wrong_look: ["That token was refused.", "토큰이 거절됐다."],
  look_only: ["No admin token is set for this service: this page shows, and changes nothing.", "관리자 토큰이 설정되지 않은 서비스다. 조회만 할 수 있다."],
  duration: ["For how long, in seconds", "기간(초)"],
  duration_wrong: ["From 0.001 to 3600 seconds.", "0.001초에서 3600초 사이여야 한다."],
  ask_pause: ["Pause {name}?", "{name} 일시 중지"],
  ask_pause_what: [
    "From now on nobody gets a slot of this budget, on any host, until somebody resumes it. What was granted may still leave; to wait for that: call-budget budget drain {name}",
    "지금부터 재개할 때까지 모든 호스트에서 이 예산의 발신 슬롯이 나가지 않는다. 이미 허용된 호출은 나갈 수 있다. 그 소진 대기는 call-budget budget drain {name}",
  ],
  ask_resume: ["Resume {name}?", "{name} 재개"],
  ask_resume_what: ["Slots go on at the usual distance: no burst. It was paused by {who}: {why}", "평소 간격으로 발신 슬롯이 재개된다. 버스트는 없다. 일시 중지: {who}, {why}"],
  ask_pushback: ["Push {name} back?", "{name} 푸시백"],
  ask_pushback_what: ["Every next slot of this budget moves by that long, for everybody. A pushback cannot be taken back; it ends by itself.", "이 예산의 다음 슬롯이 모두 그만큼 밀린다. 되돌릴 수 없고, 시간이 지나면 스스로 끝난다."],
  did_pause: ["{name} is paused.", "{name}: 일시 중지 처리됨"],
  did_resume: ["{name} is resumed.", "{name}: 재개 처리됨"],
  did_pushback: ["{name} is pushed back.", "{name}: 푸시백 처리됨"],
  wrong_token: ["Wrong admin token (401). Nothing was changed.", "관리자 토큰이 틀렸다(401). 바뀐 것은 없다."],
  no_admin: ["No admin token is set for this service (403): nothing can be changed here.", "이 서비스에는 관리자 토큰이 설정돼 있지 않다(403). 여기서는 바꿀 수 없다."],
  refused: ["{status}: {detail}", "{status}: {detail}"],
  no_answer: ["No answer: it may have been done, or not. Look at the state before you try again.", "응답이 없다. 반영됐는지 알 수 없다. 다시 하기 전에 상태를 확인한다."],

  key_help: ["this list", "이 목록"],
  key_budget: ["to the first, second, … budget", "첫째, 둘째, … 예산으로"],
  key_breakers: ["to the breakers", "서킷 브레이커로"],
  key_language: ["the other language", "언어 전환"],
  key_tab: ["to the next button, and press it", "다음 버튼으로 이동, 누르기"],
  key_escape: ["closes a dialog, nothing is changed", "대화 상자 닫기, 바뀌는 것 없음"],
  single_keys: ["Single keys do this (off: only Tab, Enter and Esc)", "한 글자 단축키 사용(끄면 Tab, Enter, Esc만)"],
};

// What the library itself says of a breaker. Everything else that comes from the server is shown as it came.
const LIBRARY = {
  "bad ones in a row": [, "연속 실패"],
  "the rate of bad ones": [, "실패율 초과"],
  "the rate of slow ones": [, "지연율 초과"],
  "a probe failed": [, "프로브 실패"],
  "probes without evidence": [, "판정할 수 없는 프로브"],
  "a closed window of the calendar": [, "달력의 차단 시간"],
  "a closed window has passed: a probe goes first": [, "차단 시간 종료, 프로브부터 나간다"],
  'the schema is older than this call-budget: run "call-budget migrate"': [, "스키마가 이 call-budget보다 오래됐다. call-budget migrate를 실행한다"],
  'this role may not see them: run "call-budget access ROLE --as client" again': [, "이 역할에는 조회 권한이 없다. call-budget access ROLE --as client를 다시 실행한다"],
  streak: ["bad ones in a row", "연속 실패"],
  rate: ["the rate of bad ones", "실패율 초과"],
  slow: ["the rate of slow ones", "지연율 초과"],
  probe: ["a probe failed", "프로브 실패"],
  no_evidence: ["probes without evidence", "판정할 수 없는 프로브"],
};

const LANGUAGES = ["en", "ko"];
let at = 0;

export function language() {
  return LANGUAGES[at];
}

export function speak(name) {
  at = Math.max(0, LANGUAGES.indexOf(name));
}

/** The text of that name with `{words}` filled in. */
export function say(name, words = {}) {
  const text = TEXT[name][at] ?? TEXT[name][0] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, word) => words[word] ?? "");
}

/** What the server says, in the reader's language where the page knows it; else as it came. */
export function said(text) {
  return (Object.hasOwn(LIBRARY, text) && LIBRARY[text][at]) || text;
}

export function number(value, digits = 0) {
  return value.toLocaleString(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Slots a second: one place behind the point, more where it is less than one. */
export function rate(perSecond) {
  if (perSecond === 0) return "0";
  return number(perSecond, perSecond < 0.95 ? 2 : 1);
}

export function percent(part) {
  return number(part * 100, 0) + "%";
}

/** A duration, as far as it says something at a glance. */
export function span(us) {
  const ms = Math.max(0, us) / 1000;
  const seconds = Math.floor(ms / 1000);
  const [s, min, h, d] = at === 1 ? ["초", "분", "시간", "일"] : [" s", " min", " h", " d"];
  if (ms < 1 && us > 0) return `${Math.round(us)} µs`;
  if (ms < 100 && ms > 0) return `${Math.round(ms)} ms`;
  if (ms < 9950) return number(ms / 1000, ms % 1000 === 0 ? 0 : 1) + s;
  if (seconds < 60) return seconds + s;
  const two = (large, unit, rest, smaller) => (rest === 0 ? `${large}${unit}` : `${large}${unit} ${rest}${smaller}`);
  if (seconds < 3600) return two(Math.floor(seconds / 60), min, seconds % 60, s);
  if (seconds < 86400) return two(Math.floor(seconds / 3600), h, Math.floor((seconds % 3600) / 60), min);
  return two(Math.floor(seconds / 86400), d, Math.floor((seconds % 86400) / 3600), h);
}

/** The same for ages that tick: whole seconds, so that nothing flickers. */
export function age(us) {
  return span(Math.floor(Math.max(0, us) / 1e6) * 1e6);
}

/** The time of day, where the reader is: 09:00:07 in every language. */
export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString("en-GB");
}
