-- The credit of a collection's subscribers, over all queues below it. Each item that one of them may hold is a reference: `lent` has its
-- subscriber, number, turn before, pause until a look, lock time and end, deadline, why it is to end (`-`: it is not) and its queue;
-- it counts in `locks_by_subscriber`, as a lock does in a queue. Queues ask (`asking`, in turn; `wants`), and get references: the queue that has
-- waited longest, of the subscriber served longest ago. Only the queue's word ends a reference, or its long silence. So references are
-- looked at (`looks`): a lost word delays nobody for long.
-- CALL: now = nil, turned = false, lent = 0
-- `turned`: this call is a turn, which has lent so many references.
local semaphore = {LIMIT = 64, MOST = 1000, LOOK_MS = 3000, SLOWEST_MS = 60000, SILENCE_MS = 60000, PASSED_MS = 10000}

local function first_look()
  local first = redis.call('ZRANGE', key.looks, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first)
end

-- Returns the collection's own time in ms: it goes on with Redis's, never back, and from one call to the next by little or up to the next
-- look. So a clock that jumps at a failover ends nothing too early, and delays no look.
local function now()
  if not call.semaphore_now then
    local at, seen = string.match(call.partition_before.clock or '0 0', '^(%d+) (%d+)$')
    local passed = math.max(0, call.partition_now - tonumber(seen))
    if passed > semaphore.LOOK_MS then
      passed = math.min(passed, math.max(semaphore.LOOK_MS, (first_look() or 0) - tonumber(at)))
    end
    call.semaphore_now = tonumber(at) + passed
    redis.call('HSET', key.meta, 'clock', string.format('%d %d', call.semaphore_now, call.partition_now))
  end
  return call.semaphore_now
end

local function write(name, one)
  write_buffer.add('HSET', key.lent, name, string.format('%s %d %d %d %d %d %d %s ', one.subid, one.token, one.before, one.step, one.hold,
    one.ends, one.deadline, one.reason) .. one.queue)
end

-- Returns what a line of `lent` says; nil for none.
function semaphore.read(line)
  local subid, token, before, step, hold, ends, deadline, reason, queue =
    string.match(line or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  return subid and {subid = subid, token = tonumber(token), before = tonumber(before), step = tonumber(step), hold = tonumber(hold),
    ends = tonumber(ends), deadline = tonumber(deadline), reason = reason, queue = queue}
end

local function look_at(name, after)
  write_buffer.add('ZADD', key.looks, string.format('%d', now() + after), name)
end

-- Its subscriber has its turn again, unless it has been served since.
local function restore_turn(one)
  for _, where in ipairs({key.ready_subscribers, key.idle_subscribers}) do
    local served = redis.call('ZSCORE', where, one.subid)
    if served and tonumber(served) == one.token then redis.call('ZADD', where, one.before, one.subid) end
  end
end

local function finish(name, one)
  write_buffer.add('HDEL', key.lent, name)
  write_buffer.add('ZREM', key.looks, name)
  write_buffer.add('ZREM', key.locks_by_subscriber, held_locks.member(string.format('%d', one.token), name))
  lock_end.touch(one.subid)
end

-- A queue holds a reference for so many ms more; until the next look, its lock may be renewed.
local function confirm(name, one, left)
  one.step = math.max(semaphore.LOOK_MS, math.min(2 * one.step, semaphore.SLOWEST_MS, one.hold / 4))
  one.ends = math.max(one.ends, now() + one.step + math.max(left, one.hold))
  write(name, one)
  look_at(name, one.step)
end

-- The queue is to end the reference at once, for a reason.
local function withdraw(name, one, reason)
  one.reason = reason
  write(name, one)
  look_at(name, 0)
end

-- Books what queues said of references, each with a word: `unused` (its subscriber has its turn again), `passed` (the same, and the queue
-- does not admit it for now), `silent` (the queue does not answer), `unknown` (it has no such lock, and never will), for how many ms it
-- has it, or how the lock has ended: `ended`, `reached`, `bounced`, or `gone`. With `withdrawn` it is to end there. Returns the
-- subids of those that bounced, each with whether nobody is there.
function semaphore.book(words)
  local names, how, bounced = {}, {}, {}
  for name, word in string.gmatch(words, '(%S+) (%S+)') do
    if not how[name] then names[#names + 1] = name end
    how[name] = word
  end
  local lines = #names > 0 and redis.call('HMGET', key.lent, unpack(names)) or names
  -- The last first: of several that one subscriber did not use, each restores the turn before it.
  for i = #names, 1, -1 do
    local name = names[i]
    local one, word = semaphore.read(lines[i]), how[name]
    budget.spend(0.4)
    if one and word == 'withdrawn' then
      withdraw(name, one, word)
    elseif one and tonumber(word) then
      confirm(name, one, tonumber(word))
    elseif one and not (word == 'silent' and one.ends + semaphore.SILENCE_MS > now()) then
      finish(name, one)
      if word == 'unused' or word == 'passed' then restore_turn(one) end
      if word == 'passed' then
        redis.call('ZADD', key.passed_over, now() + semaphore.PASSED_MS, one.subid .. ' ' .. one.queue)
      elseif word == 'reached' then
        lock_end.note_arrival(one.subid)
      elseif word == 'bounced' or word == 'gone' then
        bounced[#bounced + 1] = {one.subid, word == 'gone'}
      end
    end
  end
  return bounced
end

local function put_want(queue, one, holders)
  redis.call('HSET', key.wants, queue, string.format('%d %d %d %d %d ', one.left, one.level, one.at, one.stamp, one.hold) .. holders)
end

-- Notes that a queue at a `level` below asks: for how many items, by its own time `stamp`, with its lock time, and the last holders of its
-- first items. It keeps its place in the line.
function semaphore.ask(queue, count, level, stamp, hold, holders)
  redis.call('ZADD', key.asking, 'NX', string.format('%d', partition.next_number()), queue)
  put_want(queue, {left = count, level = level, at = now(), stamp = stamp, hold = hold}, holders)
end

-- Forgets a queue that does not answer, or is not below any more: it asks again.
function semaphore.drop(queue)
  redis.call('ZREM', key.asking, queue)
  redis.call('HDEL', key.wants, queue)
end

-- Ends a subscriber's references where they are held, for a reason.
function semaphore.withdraw(subid, reason)
  local names = held_locks.of(subid, semaphore.MOST)
  local lines = #names > 0 and redis.call('HMGET', key.lent, unpack(names)) or names
  for i, name in ipairs(names) do
    local one = semaphore.read(lines[i])
    if one then withdraw(name, one, reason) end
  end
  write_buffer.flush()
  budget.spend(#names / 4)
end

-- Returns those that ask, first those that have waited longest, and what each wants.
local function line_of_queues()
  local names = redis.call('ZRANGE', key.asking, 0, semaphore.LIMIT - 1)
  local wants, found = #names > 0 and redis.call('HMGET', key.wants, unpack(names)) or names, {}
  for i, name in ipairs(names) do
    local left, level, at, stamp, hold, holders = string.match(wants[i] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    if left then
      local one = {name = name, left = tonumber(left), level = tonumber(level), at = tonumber(at), stamp = tonumber(stamp),
        hold = tonumber(hold), holders = {}, given = 0}
      for each in string.gmatch(holders, '%S+') do one.holders[#one.holders + 1] = each end
      found[#found + 1] = one
    else
      semaphore.drop(name)
    end
  end
  return found
end

-- Whether a subscription is for items of queues at this level, and the queue admits it as far as is known.
local function suits(subscriber, one, passed)
  if not subscriber.kind then
    local scope = redis.call('HGET', key.scopes, subscriber.subid) or 'items all'
    subscriber.kind, subscriber.depth = string.match(scope, '^(%a+) (%w+)$')
  end
  if subscriber.kind == 'nodes' or (subscriber.depth ~= 'all' and tonumber(subscriber.depth) < one.level) then return false end
  return not (passed and redis.call('ZSCORE', key.passed_over, subscriber.subid .. ' ' .. one.name))
end

local function suits_any(subscriber, queues, passed)
  for _, one in ipairs(queues) do
    budget.spend(0.1)
    if suits(subscriber, one, passed) then return true end
  end
  return false
end

-- Returns subscribers with free credit that suit any of the queues, the least recently served first.
local function line_of_subscribers(queues, passed)
  local found, first, listed = {}, 0, nil
  repeat
    listed = redis.call('ZRANGE', key.ready_subscribers, first, first + semaphore.LIMIT - 1, 'WITHSCORES')
    for i = 1, #listed, 2 do
      local subscriber = subscriptions.get(listed[i])
      budget.spend(0.4)
      if subscriber then
        subscriber.room, subscriber.turn = credit.room(subscriber), listed[i + 1]
        if subscriber.room > 0 and suits_any(subscriber, queues, passed) then found[#found + 1] = subscriber end
      else
        ready_subscribers.forget({listed[i]})
      end
    end
    first = first + semaphore.LIMIT
  until #found > 0 or #listed < 2 * semaphore.LIMIT or budget.over()
  return found
end

-- Returns the index of the next subscriber for a queue: not who gave its item back, while there is another; nil for none.
local function choose(queue, one, passed)
  local avoided, only = one.holders[one.given + 1], nil
  for i, subscriber in ipairs(queue) do
    if suits(subscriber, one, passed) then
      if subscriber.subid ~= avoided then return i end
      only = i
    end
  end
  return only
end

-- Lends the subscriber's next reference to the queue, for a receive until three seconds from now by the queue's own time; returns its name
-- and that time.
local function lend(subscriber, one)
  local token, deadline = partition.next_number(), one.stamp + now() - one.at + references.LASTS_MS
  local name = arg.taken .. '-' .. call.semaphore_lent
  call.semaphore_lent = call.semaphore_lent + 1
  write(name, {subid = subscriber.subid, token = token, before = subscriber.turn, step = semaphore.LOOK_MS, hold = one.hold,
    ends = now() + semaphore.LOOK_MS + one.hold, deadline = deadline, reason = '-', queue = one.name})
  look_at(name, semaphore.LOOK_MS)
  write_buffer.add('ZADD', key.locks_by_subscriber, subscriber.subid, held_locks.member(string.format('%d', token), name))
  subscriber.room, subscriber.turn, subscriber.served = subscriber.room - 1, token, true
  one.left, one.given = one.left - 1, one.given + 1
  return name, deadline
end

-- Stores the turns of those that were served, and the line of queues: those that were served go to its end, and with credit `left` those
-- for which nobody was found.
local function record(subscribers, queues, left)
  for _, each in ipairs(subscribers) do
    if each.served then
      redis.call('ZREM', key.ready_subscribers, each.subid)
      redis.call('ZADD', each.room > 0 and key.ready_subscribers or key.idle_subscribers, each.turn, each.subid)
    end
  end
  for _, one in ipairs(queues) do
    if one.left == 0 then
      semaphore.drop(one.name)
    elseif one.given > 0 or left then
      redis.call('ZADD', key.asking, string.format('%d', partition.next_number()), one.name)
      put_want(one.name, one, table.concat(one.holders, ' ', math.min(one.given, #one.holders) + 1))
    end
  end
end

-- Lends what is asked for and free, one reference to each queue in turn; returns them, and whether there may be more to lend.
function semaphore.lend()
  local given = {}
  if not semaphore.is_owed() then return given, 0 end
  local over = redis.call('ZRANGEBYSCORE', key.passed_over, '-inf', now(), 'LIMIT', 0, semaphore.LIMIT)
  if #over > 0 then redis.call('ZREM', key.passed_over, unpack(over)) end
  local passed = redis.call('EXISTS', key.passed_over) == 1
  local queues, line, dealt = line_of_queues(), {}, true
  local subscribers = line_of_subscribers(queues, passed)
  for i, subscriber in ipairs(subscribers) do line[i] = subscriber end
  while dealt do
    dealt = false
    for _, one in ipairs(queues) do
      local at = #given < semaphore.LIMIT and #line > 0 and one.left > 0 and choose(line, one, passed)
      if at then
        local subscriber = table.remove(line, at)
        local name, deadline = lend(subscriber, one)
        given[#given + 1] = {one.name, name, subscriber.subid, subscriber.jid, subscriptions.sending(subscriber), deadline,
          call.partition_before.multi and subscriber.subid or ''}
        if subscriber.room > 0 then line[#line + 1] = subscriber end
        dealt = true
      end
    end
  end
  record(subscribers, queues, #line > 0 or #subscribers == 0)
  return given, #given == semaphore.LIMIT and 1 or 0
end

-- Lends a pull subscription references for a queue, up to `count` and until it has `limit`, or its own credit if that is empty. Returns the
-- queue's time after which they must not be used, and their names.
function semaphore.lend_to_puller(subid, queue, count, limit, stamp, hold)
  local subscriber, names, deadline = subscriptions.get(subid), {}, 0
  if not subscriber then return {0, ''} end
  if limit ~= '' and tonumber(limit) ~= subscriber.limit then
    subscriber.limit = tonumber(limit)
    subscriptions.put(subscriber)
  end
  -- Another row may be of the same subscription.
  write_buffer.flush()
  subscriber.room, subscriber.turn = credit.room(subscriber), 0
  local one = {name = queue, left = count, at = now(), stamp = stamp, hold = hold, given = 0}
  while one.left > 0 and subscriber.room > 0 do names[#names + 1], deadline = lend(subscriber, one) end
  return {deadline, table.concat(names, ' ')}
end

-- Returns references that are to be looked at: queue, name, deadline, and why the lock there is to end, if it is.
function semaphore.looks()
  call.semaphore_turned = true
  local names = redis.call('ZRANGEBYSCORE', key.looks, '-inf', now(), 'LIMIT', 0, 4 * semaphore.LIMIT)
  local lines, found = #names > 0 and redis.call('HMGET', key.lent, unpack(names)) or names, {}
  for i, name in ipairs(names) do
    local one = semaphore.read(lines[i])
    if one then
      look_at(name, semaphore.LOOK_MS)
      found[#found + 1] = {one.queue, name, one.deadline, one.reason ~= '-' and one.reason or ''}
    else
      write_buffer.add('ZREM', key.looks, name)
    end
  end
  write_buffer.flush()
  return found
end

-- Whether a queue asks while a subscriber has credit.
function semaphore.is_owed()
  return redis.call('EXISTS', key.asking) == 1 and redis.call('EXISTS', key.ready_subscribers) == 1
end

-- Tells that a turn is to be taken: perhaps something can be lent, or is to be looked at.
function semaphore.tell()
  if call.semaphore_turned then return end
  local first = first_look()
  if first and first <= now() or call.caller_sends and semaphore.is_owed() then notices.tell({'turn'}) end
end

-- Returns when a turn is to be taken: `due` or sooner.
function semaphore.next(due)
  if not call.caller_sends and not call.caller_alone and semaphore.is_owed() then return call.partition_now end
  local first = first_look()
  local at = first and call.partition_now + math.max(1, first - now())
  return at and (due == 0 or at < due) and at or due
end
