import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { keyWanted } from './api/session';
import { useStore } from './api/store';
import { AdapterPage } from './pages/adapter';
import { AdaptersPage } from './pages/adapters';
import { ComparePage } from './pages/compare';
import { EvaluationPage } from './pages/evaluation';
import { EvaluationsPage } from './pages/evaluations';
import { FilePage } from './pages/file';
import { FilesPage } from './pages/files';
import { HomePage } from './pages/home';
import { JobPage } from './pages/job';
import { JobsPage } from './pages/jobs';
import { KeysPage } from './pages/keys';
import { NewEvaluationPage } from './pages/new_evaluation';
import { NewJobPage } from './pages/new_job';
import { PlatformPage } from './pages/platform';
import { PlaygroundPage } from './pages/playground';
import { Questions } from './ui/dialog';
import { HelpDialog, useKeys } from './ui/help';
import { Icon, Logo, type IconName } from './ui/icons';
import { KeyDialog } from './ui/key_dialog';
import { Messages } from './ui/messages';
import { Empty } from './ui/parts';
import { route, to, type Route } from './ui/route';
import { chooseTheme, themeChoice } from './ui/theme';
import { WhoIsHere } from './ui/who';

const places: { key: string; label: string; icon: IconName; path: string[] }[] = [
  { key: '', label: 'Start', icon: 'home', path: [] },
  { key: 'jobs', label: 'Jobs', icon: 'jobs', path: ['jobs'] },
  { key: 'files', label: 'Data', icon: 'data', path: ['files'] },
  { key: 'adapters', label: 'Adapters', icon: 'adapters', path: ['adapters'] },
  { key: 'playground', label: 'Playground', icon: 'chat', path: ['playground'] },
  { key: 'evaluations', label: 'Evaluations', icon: 'evaluate', path: ['evaluations'] },
  { key: 'platform', label: 'Platform', icon: 'platform', path: ['platform'] },
  { key: 'keys', label: 'Keys', icon: 'key', path: ['keys'] },
];

function pageOf({ path, query }: Route): [title: string, page: ComponentChildren] {
  const [area = '', id, more] = path;
  switch (area) {
    case '':
      return ['Start', <HomePage />];
    case 'jobs':
      if (id === 'new') return ['New job', <NewJobPage query={query} />];
      if (id === 'compare') return ['Compare jobs', <ComparePage ids={(query.get('ids') ?? '').split(',').filter(Boolean)} />];
      return id ? [`Job ${id.slice(-6)}`, <JobPage key={id} id={id} tab={query.get('tab') ?? 'curves'} />] : ['Jobs', <JobsPage />];
    case 'files':
      return id ? ['Data file', <FilePage key={id} id={id} />] : ['Data', <FilesPage />];
    case 'adapters':
      return id ? ['Adapter', <AdapterPage key={id} id={id} />] : ['Adapters', <AdaptersPage />];
    case 'playground':
      return ['Playground', <PlaygroundPage query={query} />];
    case 'evaluations':
      if (id === 'new') return ['New evaluation', <NewEvaluationPage query={query} />];
      return id
        ? ['Evaluation', <EvaluationPage key={id} id={id} compare={more === 'compare' ? (path[3] ?? '') : ''} />]
        : ['Evaluations', <EvaluationsPage />];
    case 'platform':
      return ['Platform', <PlatformPage tab={query.get('tab') ?? 'health'} />];
    case 'keys':
      return ['API keys', <KeysPage />];
    default:
      return [
        'Not found',
        <Empty icon="search" title="There is no such page">
          <p>
            <a href={to([])}>Back to the start</a>
          </p>
        </Empty>,
      ];
  }
}

export function App() {
  const current = useStore(route);
  const wanted = useStore(keyWanted);
  const choice = useStore(themeChoice);
  const [menu, setMenu] = useState(false);
  const [help, setHelp] = useState(false);
  const [key, setKey] = useState(false);
  const main = useRef<HTMLElement>(null);
  const [title, page] = pageOf(current);
  const address = current.path.join('/');
  const first = useRef(true);

  useKeys(() => setHelp(true));
  useEffect(() => {
    document.title = `${title} · DEX`;
    setMenu(false);
    if (first.current) {
      first.current = false;
      return;
    }
    window.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true }); // screen readers begin at the new page
  }, [address]);

  const themes = { auto: ['contrast', 'Theme: as the system'], light: ['sun', 'Theme: light'], dark: ['moon', 'Theme: dark'] } as const;
  const nextTheme = { auto: 'light', light: 'dark', dark: 'auto' } as const;
  return (
    <div class="shell">
      <button class="button primary skip" type="button" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header class="topbar">
        <a class="brand" href={to([])}>
          <Logo />
          DEX
        </a>
        <button class="button" type="button" aria-expanded={menu} aria-controls="side" onClick={() => setMenu(!menu)}>
          <Icon name={menu ? 'cross' : 'menu'} /> {menu ? 'Close' : 'Menu'}
        </button>
      </header>
      <div id="side" class={`side${menu ? ' open' : ''}`}>
        <a class="brand" href={to([])}>
          <Logo size={34} />
          <span>
            DEX<small>fine-tuning</small>
          </span>
        </a>
        <WhoIsHere onKey={() => setKey(true)} />
        <nav class="nav" aria-label="Pages">
          {places.map((place) => (
            <a
              key={place.key}
              href={to(place.path)}
              aria-current={(current.path[0] ?? '') === place.key ? 'page' : undefined}
              onClick={() => setMenu(false)}
            >
              <Icon name={place.icon} />
              {place.label}
            </a>
          ))}
        </nav>
        <div class="side-foot">
          <button class="tool" type="button" onClick={() => chooseTheme(nextTheme[choice])}>
            <Icon name={themes[choice][0]} />
            {themes[choice][1]}
          </button>
          <button class="tool" type="button" onClick={() => setKey(true)}>
            <Icon name="key" />
            API key
          </button>
          <button class="tool" type="button" onClick={() => setHelp(true)}>
            <Icon name="help" />
            Help and keys
          </button>
        </div>
      </div>
      <main ref={main} tabIndex={-1} id="main">
        {page}
      </main>
      <Messages />
      <Questions />
      {help && <HelpDialog onClose={() => setHelp(false)} />}
      {(key || wanted) && <KeyDialog wanted={wanted} onClose={() => (setKey(false), keyWanted.set(false))} />}
    </div>
  );
}
