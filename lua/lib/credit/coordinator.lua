-- The coordinator of credit that several partitions share: the first partition of a node that has several, and a collection's own. It
-- knows every subscriber's credit and turn (`ready_subscribers`), what each partition uses (`ledger`), and which partitions have items
-- and no credit (`demand`, in turn; `wanted` has how much and for whom). It grants them credit, the least recently served subscriber
-- first, and a frontend carries each grant to its partition. So fairness is the node's, not a partition's (Q30, Q35).
-- CALL: made = {}, owed = false, stopped = false
-- `made` are the grants of this script: number of the partition, subid, number of the grant, amount. `owed`: a frontend has to continue,
-- because the next subscriber in turn is sent its items. `stopped`: not all subscribers were looked at.
local coordinator = {LIMIT = 200, PAGE = 200, MOST = 1000, AGAIN_MS = 2000, PAUSE_MS = 100}

-- Keeps a demand, and what is left of it. With nothing left the version stays, so that a report of an earlier demand that arrives later
-- changes nothing. The coordinator's own partition needs no version: its reports arrive in order.
local function keep(number, version, left, whom)
  if left > 0 or number ~= arg.number then
    redis.call('HSET', key.wanted, number, string.format('%.0f %d %s', version, left, whom))
  else
    redis.call('HDEL', key.wanted, number)
  end
  if left == 0 then redis.call('ZREM', key.demand, number) end
end

-- Records that a partition wants credit for `wanted` items; 0 for no longer. `whom` is `A` and the last holder of each of its first items
-- (`-`: none), so that no item goes back to the subscriber that gave it back; or `W` and the subids whose credit is of use, `*` for all
-- without a selector.
function coordinator.want(number, version, wanted, whom)
  local known = string.match(redis.call('HGET', key.wanted, number) or '', '^(%d+) ')
  if known and tonumber(known) > version or not known and wanted == 0 and number == arg.number then return end
  keep(number, version, wanted, wanted > 0 and whom or 'A')
  if wanted > 0 then redis.call('ZADD', key.demand, 'NX', string.format('%d', partition.next_number()), number) end
end

-- Forgets all partitions that are not registered (a list of partitions, each with its number): deleted ones, and those of which a late
-- report came after that.
function coordinator.retain(registered)
  local there = {}
  for i = 2, #registered, 2 do there[registered[i]] = true end
  for _, number in ipairs(redis.call('HKEYS', key.wanted)) do
    if not there[number] then
      redis.call('HDEL', key.wanted, number)
      redis.call('ZREM', key.demand, number)
    end
  end
end

local function demands()
  local found = {}
  for _, number in ipairs(redis.call('ZRANGE', key.demand, 0, coordinator.LIMIT - 1)) do
    local version, wanted, kind, names =
      string.match(redis.call('HGET', key.wanted, number) or '', '^(%d+) (%d+) (%a) ?(.*)$')
    if version then
      -- Grants on their way cover a part of it.
      local rest = math.max(0, tonumber(wanted) - ledger.underway(number))
      local one = {number = number, version = version, wanted = tonumber(wanted), left = rest, kind = kind, names = {}, named = {}, next = 1,
        amounts = {}, closed = {}}
      for each in string.gmatch(names, '%S+') do
        one.names[#one.names + 1] = each
        one.named[each] = true
      end
      found[#found + 1] = one
    end
  end
  return found
end

-- Returns whether no grant may go there: one is on its way already, or the partition does not know the subscriber.
local function is_closed(one, subid)
  if one.closed[subid] == nil then
    local entry = ledger.get(subid, one.number)
    call.budget_spent = call.budget_spent + 0.4
    one.closed[subid] = entry and (entry.amount > 0 or entry.shut) or false
  end
  return one.closed[subid]
end

-- Returns the index of the next subscriber of the queue for a partition; nil for none.
local function choose(queue, one)
  local avoided, only = one.kind == 'A' and one.names[one.next], nil
  for i, subscriber in ipairs(queue) do
    local subid = subscriber.subid
    local serves = one.kind == 'A' or one.named[subid] or (one.named['*'] and not selectors.line(subid))
    if serves and not is_closed(one, subid) then
      if subid ~= avoided then return i end
      only = i
    end
  end
  return only
end

-- Returns those with free credit among `count` subscribers from the `first` in turn on, and whether there are more; none to a caller that
-- cannot send. The owner of this partition takes part only here (E28).
local function page(first, count)
  local found, subids = {}, redis.call('ZRANGE', key.ready_subscribers, first, first + count - 1)
  for _, subid in ipairs(subids) do
    local subscriber = subscriptions.get(subid)
    call.budget_spent = call.budget_spent + 0.4
    if not subscriber then
      ready_subscribers.forget({subid})
      -- Others have moved up.
      if budget.exhausted() then return found, false end
      return page(first, count)
    end
    if not call.caller_sends then
      call.coordinator_owed = not call.caller_alone
      return found, false
    end
    subscriber.room = partition_owner.is(subid) and 0 or credit.room(subscriber)
    if subscriber.room > 0 then found[#found + 1] = subscriber end
  end
  return found, #subids == count
end

-- Grants one item to each partition in turn, until none wants more, no subscriber has credit, or the budget is spent.
local function grant_in_turn(queue, asked, given, served, most)
  local dealt = true
  while dealt and given < most do
    dealt = false
    for _, one in ipairs(asked) do
      call.coordinator_stopped = budget.exhausted()
      if call.coordinator_stopped then return given end
      one.looked = #queue > 0
      local at = one.left > 0 and given < most and choose(queue, one)
      if at then
        local subscriber = table.remove(queue, at)
        subscriber.room = subscriber.room - 1
        if subscriber.room > 0 then queue[#queue + 1] = subscriber end
        served[subscriber.subid], subscriber.served = subscriber, given
        one.amounts[subscriber.subid] = (one.amounts[subscriber.subid] or 0) + 1
        one.left, one.next, given, dealt = one.left - 1, one.next + 1, given + 1, true
      end
    end
  end
  return given
end

-- The number of a grant becomes the subscriber's turn.
local function record(asked, served)
  local order = {}
  for _, subscriber in pairs(served) do order[#order + 1] = subscriber end
  table.sort(order, function(a, b) return a.served < b.served end)
  for _, subscriber in ipairs(order) do
    local subid, grant = subscriber.subid, nil
    local turn = redis.call('ZSCORE', key.ready_subscribers, subid)
    for _, one in ipairs(asked) do
      local amount = one.amounts[subid]
      if amount then
        grant = string.format('%d', partition.next_number())
        ledger.grant(subid, one.number, grant, amount, string.format('%.0f', tonumber(turn)))
        call.coordinator_made[#call.coordinator_made + 1] = {one.number, subid, grant, amount}
      end
    end
    redis.call('ZREM', key.ready_subscribers, subid)
    redis.call('ZADD', subscriber.room > 0 and key.ready_subscribers or key.idle_subscribers, grant, subid)
  end
  for _, one in ipairs(asked) do
    local given = one.next - 1
    one.left = math.max(0, one.wanted - given)
    if given > 0 then
      local names = one.kind == 'A' and table.concat(one.names, ' ', math.min(one.next, #one.names + 1))
        or table.concat(one.names, ' ')
      keep(one.number, one.version, one.left, one.left > 0 and one.kind .. ' ' .. names or 'A')
    end
    -- A partition that was granted some goes to the end; so does one for which nobody was found before the search stopped.
    if one.left > 0 and (given > 0 or call.coordinator_stopped and one.looked) then
      redis.call('ZADD', key.demand, string.format('%d', partition.next_number()), one.number)
    end
  end
end

local function left(asked)
  local sum = 0
  for _, one in ipairs(asked) do sum = sum + one.left end
  return sum
end

-- Grants the credit that is wanted and free.
function coordinator.run()
  if redis.call('EXISTS', key.demand) == 0 or redis.call('EXISTS', key.ready_subscribers) == 0 then return end
  local asked, served, given, first = demands(), {}, 0, 0
  -- One more than are wanted, so that the last holder of an item can be avoided. Look at more subscribers only if those were of no use.
  local count = math.min(left(asked) + 1, coordinator.PAGE)
  repeat
    local queue, more = page(first, count)
    given = grant_in_turn(queue, asked, given, served, coordinator.LIMIT)
    first, count = first + count, coordinator.PAGE
  until not more or left(asked) == 0 or given >= coordinator.LIMIT or first >= coordinator.MOST or call.coordinator_stopped
  call.coordinator_owed = call.coordinator_owed and left(asked) > 0
  call.coordinator_stopped = call.coordinator_stopped or #asked == coordinator.LIMIT and given == 0 and asked[1].looked
  record(asked, served)
end

-- Sends grants again that no report has answered: the frontend that carried them may be dead. A grant that was taken is void.
function coordinator.resume()
  local late = redis.call('ZRANGEBYSCORE', key.grants_underway, '-inf', call.partition_now - coordinator.AGAIN_MS, 'LIMIT', 0,
    coordinator.LIMIT)
  for _, each in ipairs(late) do
    local subid, number = string.match(each, '^(%d+) (%d+)$')
    local entry, subscriber = ledger.get(subid, number), subscriptions.get(subid)
    if not (entry and entry.amount > 0) then
      redis.call('ZREM', key.grants_underway, each)
    elseif call.caller_sends or not subscriber then
      redis.call('ZADD', key.grants_underway, call.partition_now, each)
      call.coordinator_made[#call.coordinator_made + 1] = {number, subid, entry.grant, entry.amount}
    end
  end
end

-- Returns when the coordinator next needs a sweep: `due` or sooner.
function coordinator.next(due)
  if call.coordinator_owed then return call.partition_now end
  -- After a pause: perhaps nobody has credit that is of use.
  if call.coordinator_stopped then return call.partition_now + coordinator.PAUSE_MS end
  local first = redis.call('ZRANGE', key.grants_underway, 0, 0, 'WITHSCORES')[2]
  local at = first and tonumber(first) + coordinator.AGAIN_MS
  return at and (due == 0 or at < due) and at or due
end
