-- Credit and turns: a subscriber stands in `turns` while it may take another item and in `resting` while not; the score is
-- when it was last served (a token). Credit is counted from the set of what it holds, never kept (guarantee 3).
-- NEEDS: subscribers held turns resting
--- @include subscriptions flights owner
local credit = {}

function credit.held(subid)
  return redis.call('ZCOUNT', key.held, subid, subid)
end

-- Puts a subscriber where its free credit belongs, keeping its turn; gives how much more it could take, nil when it is not there.
function credit.settle(subid, reached)
  local subscriber = subscriptions.get(subid)
  if not subscriber then return end
  if reached then subscriptions.reached(subscriber) end
  local room = subscriber.limit - credit.held(subid)
  local from, to = room > 0 and key.resting or key.turns, room > 0 and key.turns or key.resting
  local served = redis.call('ZSCORE', from, subid)
  if served then
    redis.call('ZREM', from, subid)
    redis.call('ZADD', to, served, subid)
  end
  return room
end

-- While the partition is owned, nobody else is next (E28).
local function next_in_turn(count, first)
  local who = owner.get()
  if not who then return redis.call('ZRANGE', key.turns, first, first + count - 1) end
  return not who.clearing and redis.call('ZSCORE', key.turns, who.subid) and {who.subid} or {}
end

-- Up to `count` subscribers with free credit, the least recently served first, and how much they can take together; without
-- the `first` so many in turn.
function credit.candidates(count, first)
  local subids = next_in_turn(count, first or 0)
  if #subids == 0 then return {}, 0 end
  local lines, found, room = redis.call('HMGET', key.subscribers, unpack(subids)), {}, 0
  for i, subid in ipairs(subids) do
    local subscriber = subscriptions.read(subid, lines[i])
    subscriber.held, subscriber.holder = credit.held(subid), flights.holder(subscriber.jid)
    room = room + subscriber.limit - subscriber.held
    found[i] = subscriber
  end
  return found, room
end
