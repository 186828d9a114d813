-- Hands waiting items to subscribers with free credit; part of every script that can enable it.
-- NEEDS: inflight deadlines held ready turns resting
--- @include partition writes positions flights credit waiting
-- Bounded by count and by bytes: a reply is held in memory here, in the frontend, and in the XMPP server.
local dispatch = {LIMIT = 200, ROUND = 32, BYTES = 1048576}

-- The next subscriber for an item: least recently served, but not the one that gave it back while another has credit (Q30).
local function pick(queue, past)
  local first = queue.first
  if queue[first].subid == past.holders[1] and queue[first + 1] then
    queue[first], queue[first + 1] = queue[first + 1], queue[first]
  end
  queue.first = first + 1
  return queue[first]
end

local function lock(taken, subscriber, deliveries)
  local entry, token, attempt = taken.entry, partition.token + 1, taken.past.attempts + 1
  partition.token = token
  local text = string.format('%.0f', token)
  local item = entry.item ~= '' and entry.item or positions.item_id(taken.position)
  writes.add('HSET', key.inflight, taken.position, flights.write({subid = subscriber.subid, token = text,
    attempt = attempt, since = partition.stamp, frontend = arg.frontend, sequence = text, log_id = entry.log_id,
    bytes = #entry.body, jid = subscriber.jid, item = item}))
  writes.add('ZADD', key.deadlines, partition.deadline_text, taken.position)
  writes.add('ZADD', key.held, '0', subscriber.subid .. ':' .. taken.position)
  deliveries[#deliveries + 1] = {subscriber.jid, taken.position, item, token, attempt, partition.deadline, entry.by,
    entry.body, token}
  subscriber.held, subscriber.served = subscriber.held + 1, text
end

local function assign(items, queue, deliveries)
  queue.first = 1
  for _, taken in ipairs(items) do
    local subscriber = pick(queue, taken.past)
    lock(taken, subscriber, deliveries)
    if subscriber.held < subscriber.limit then queue[#queue + 1] = subscriber end
  end
  local served = {}
  for i = 1, #queue do
    local subscriber = queue[i]
    if subscriber.served and not served[subscriber.subid] then
      served[subscriber.subid] = true
      if subscriber.held < subscriber.limit then
        writes.add('ZADD', key.turns, subscriber.served, subscriber.subid)
      else
        writes.add('ZREM', key.turns, subscriber.subid)
        writes.add('ZADD', key.resting, subscriber.served, subscriber.subid)
      end
    end
  end
  writes.flush()
end

-- Gives the deliveries made and whether more could be made at once: after a bound the caller runs `expire` again.
-- `hint` is how many the caller expects: the first round reads so many candidates and no more.
function dispatch.run(hint)
  local deliveries, bytes = {}, 0
  waiting.promote()
  while #deliveries < dispatch.LIMIT and bytes < dispatch.BYTES do
    local want = math.min(math.max(hint, 1), dispatch.ROUND, dispatch.LIMIT - #deliveries)
    -- One candidate more than items, so that a releaser can be avoided.
    local queue, room = credit.candidates(want + 1)
    if room == 0 then return deliveries, 0 end
    local items = waiting.take(math.min(want, room))
    if #items == 0 then return deliveries, 0 end
    for _, taken in ipairs(items) do bytes = bytes + #taken.entry.body end
    assign(items, queue, deliveries)
    if partition.cursor == partition.tail and redis.call('EXISTS', key.ready) == 0 then return deliveries, 0 end
    hint = hint * 2
  end
  return deliveries, 1
end
